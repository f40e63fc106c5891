//! Block devices of a container, from volumes (`volumeDevices`).

use k8s_openapi::api::core::v1::Container;
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;

use super::{StepContext, failure};
use crate::core::step::StepFailure;

/// The devices of a container. Each may be read, written and created with mknod unless its claim is
/// read-only.
pub fn container_devices(
    context: &StepContext,
    manifest: &Manifest,
    container: &Container,
) -> Result<Vec<v1::Device>, StepFailure> {
    let devices = container.volume_devices.iter().flatten();
    let device = |device: &k8s_openapi::api::core::v1::VolumeDevice| {
        let (name, path) = (&device.name, &device.device_path);
        if !path.starts_with('/') {
            let message = format!("error DevicePath `{path}` must be an absolute path");
            return Err(failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message));
        }
        let volume = context
            .volumes
            .iter()
            .find(|v| v.name == *name && v.mounted);
        let volume = volume.ok_or_else(|| {
            let message = format!(
                "cannot find volume \"{name}\" to pass into container \"{}\"",
                container.name
            );
            failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
        })?;
        let permissions = if is_read_only(manifest, name) {
            "r"
        } else {
            "mrw"
        };
        Ok(v1::Device {
            container_path: path.clone(),
            host_path: volume.host_path.clone(),
            permissions: permissions.to_owned(),
        })
    };
    devices.map(device).collect()
}

fn is_read_only(manifest: &Manifest, volume: &str) -> bool {
    let mut volumes = manifest.spec().volumes.iter().flatten();
    let claim = volumes
        .find(|declared| declared.name == volume)
        .and_then(|declared| declared.persistent_volume_claim.as_ref());
    claim.is_some_and(|claim| claim.read_only == Some(true))
}
