//! A container's block devices, out of volumes (`volumeDevices`).

use k8s_openapi::api::core::v1::Container;
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;

use super::{Job, said};
use crate::core::learn::Trouble;

/// All of them: each under the path that the container wants, to be read, written and made.
pub fn of(
    job: &Job,
    manifest: &Manifest,
    container: &Container,
) -> Result<Vec<v1::Device>, Trouble> {
    let wanted = container.volume_devices.iter().flatten();
    let device = |wanted: &k8s_openapi::api::core::v1::VolumeDevice| {
        let (name, path) = (&wanted.name, &wanted.device_path);
        if !path.starts_with('/') {
            let why = format!("error DevicePath `{path}` must be an absolute path");
            return Err(said(reason::CREATE_CONTAINER_CONFIG_ERROR, why));
        }
        let found = job.volumes.iter().find(|v| v.name == *name && v.mounted);
        let found = found.ok_or_else(|| {
            let why = format!(
                "cannot find volume \"{name}\" to pass into container \"{}\"",
                container.name
            );
            said(reason::CREATE_CONTAINER_CONFIG_ERROR, why)
        })?;
        let permissions = if read_only(manifest, name) {
            "r"
        } else {
            "mrw"
        };
        Ok(v1::Device {
            container_path: path.clone(),
            host_path: found.host_path.clone(),
            permissions: permissions.to_owned(),
        })
    };
    wanted.map(device).collect()
}

fn read_only(manifest: &Manifest, volume: &str) -> bool {
    let mut volumes = manifest.spec().volumes.iter().flatten();
    let claim = volumes
        .find(|declared| declared.name == volume)
        .and_then(|declared| declared.persistent_volume_claim.as_ref());
    claim.is_some_and(|claim| claim.read_only == Some(true))
}
