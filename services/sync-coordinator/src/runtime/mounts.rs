//! Mounts of a container: volumes, /etc/hosts, the termination message file.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;
use polylet_model::env::Environment;

use super::{RuntimeManager, StepContext, failure, files, hosts, image, runtime_class, sub_paths};
use crate::core::step::StepFailure;
use crate::core::volume_mount;

fn config_error(message: impl Into<String>) -> StepFailure {
    failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// All mounts of one container.
pub async fn container_mounts(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
    container: &Container,
    attempt: u32,
    ips: &[String],
    env: &Environment,
) -> Result<Vec<v1::Mount>, StepFailure> {
    let mut mounts = Vec::new();
    let sub_paths = sub_paths::prepared(manager, context, manifest, container, env).await?;
    for (index, volume_mount) in (0_u32..).zip(container.volume_mounts.iter().flatten()) {
        let mut mount = volume(manager, context, manifest, container, volume_mount).await?;
        let mut prepared = sub_paths.iter();
        if mount.image.is_some() {
            let path = volume_mount::sub_path(volume_mount, env);
            mount.image_sub_path = path.map_err(config_error)?;
        } else if let Some(sub_path) = prepared.find(|prepared| prepared.mount_index == index) {
            mount.host_path.clone_from(&sub_path.host_path);
        }
        mounts.push(mount);
    }
    let is_mounted = |path: &str, mounts: &[v1::Mount]| {
        mounts
            .iter()
            .any(|m| m.container_path.trim_end_matches('/') == path)
    };
    if !is_mounted("/etc/hosts", &mounts) {
        let file = hosts::write_hosts_file(manager, manifest, ips)
            .map_err(|e| config_error(format!("failed to write the pod's hosts file: {e}")))?;
        mounts.extend(file.map(|file| file_mount(&file, "/etc/hosts")));
    }
    let message_path = container
        .termination_message_path
        .as_deref()
        .unwrap_or_default();
    if !message_path.is_empty() && !is_mounted(message_path, &mounts) {
        let file = files::create_termination_log(manager, &context.pod, &container.name, attempt)
            .map_err(|e| {
            config_error(format!(
                "failed to create the termination message file: {e}"
            ))
        })?;
        mounts.push(file_mount(&file, message_path));
    }
    Ok(mounts)
}

fn file_mount(host: &Path, container: &str) -> v1::Mount {
    v1::Mount {
        host_path: host.to_string_lossy().into_owned(),
        container_path: container.to_owned(),
        selinux_relabel: true,
        ..Default::default()
    }
}

/// Whether a read-only mount is recursive, by the present features of the runtime.
async fn recursive_read_only(
    manager: &RuntimeManager,
    manifest: &Manifest,
    volume_mount: &VolumeMount,
) -> Result<bool, StepFailure> {
    if let Some(known) = volume_mount::recursive_read_only(volume_mount).map_err(config_error)? {
        return Ok(known);
    }
    let status = manager.runtime.status().await;
    let status = status.map_err(|error| config_error(error.message()))?;
    let handler = runtime_class::handler(manager, manifest).await?;
    let features = status
        .runtime_handlers
        .into_iter()
        .find(|h| h.name == handler);
    let features = features.and_then(|handler| handler.features);
    let supported = features.is_some_and(|features| features.recursive_read_only_mounts);
    volume_mount::resolve_recursive_read_only(volume_mount, supported).map_err(config_error)
}

async fn volume(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
    container: &Container,
    volume_mount: &VolumeMount,
) -> Result<v1::Mount, StepFailure> {
    let name = &volume_mount.name;
    let volume = manifest
        .spec()
        .volumes
        .iter()
        .flatten()
        .find(|v| v.name == *name);
    let not_found = || {
        config_error(format!(
            "cannot find volume \"{name}\" to mount into container \"{}\"",
            container.name
        ))
    };
    let volume = volume.ok_or_else(not_found)?;
    let container_path = absolute(&volume_mount.mount_path);
    let read_only = is_read_only(volume) || volume_mount.read_only == Some(true);
    if let Some(mount) =
        image::volume::mount(manager, manifest, volume_mount, &container_path).await?
    {
        return Ok(mount);
    }
    let mounted = context
        .volumes
        .iter()
        .find(|v| v.name == *name && v.mounted);
    let mounted = mounted.ok_or_else(not_found)?;
    Ok(v1::Mount {
        container_path,
        host_path: mounted.host_path.clone(),
        readonly: read_only,
        recursive_read_only: recursive_read_only(manager, manifest, volume_mount).await?,
        selinux_relabel: volume.host_path.is_none(),
        propagation: match volume_mount.mount_propagation.as_deref() {
            Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
            Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
            _ => v1::MountPropagation::PropagationPrivate,
        }
        .into(),
        ..Default::default()
    })
}

/// Whether a volume is read-only in every container: data from objects, and volumes that the pod
/// declares as read-only, which a CSI driver need not enforce.
fn is_read_only(volume: &Volume) -> bool {
    let is_data = volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some();
    let claim = volume.persistent_volume_claim.as_ref();
    let claim = claim.and_then(|claim| claim.read_only);
    let csi = volume.csi.as_ref().and_then(|csi| csi.read_only);
    is_data || claim == Some(true) || csi == Some(true)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn read_only_volumes_are_read_only_in_every_container() {
        let is = |mut volume: Value| {
            volume["name"] = json!("v");
            is_read_only(&serde_json::from_value(volume).unwrap())
        };
        let claim = |read_only: Value| json!({ "persistentVolumeClaim": { "claimName": "c", "readOnly": read_only } });
        assert!(is(claim(json!(true))));
        assert!(!is(claim(json!(false))));
        assert!(!is(claim(Value::Null)));
        assert!(is(json!({ "csi": { "driver": "d", "readOnly": true } })));
        assert!(!is(json!({ "csi": { "driver": "d" } })));
        assert!(is(json!({ "projected": { "sources": [] } })));
        assert!(!is(json!({ "emptyDir": {} })));
    }
}
