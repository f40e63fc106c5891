//! A container's mounts: volumes, /etc/hosts, last words.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;
use polylet_model::env::Environment;
use polylet_wire::volume::v1::{PrepareSubPathsRequest, SubPath};

use super::{Hands, Job, files, hosts, image, runtime_class, said};
use crate::core::learn::Trouble;
use crate::core::mount;

fn wrong(message: impl Into<String>) -> Trouble {
    said(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// How long volume-manager may take to bind parts of volumes: it gives up on its own before that.
const PREPARING: Duration = Duration::from_secs(15);

/// All mounts of one container.
pub async fn of(
    hands: &Hands,
    job: &Job,
    manifest: &Manifest,
    container: &Container,
    attempt: u32,
    ips: &[String],
    env: &Environment,
) -> Result<Vec<v1::Mount>, Trouble> {
    let mut mounts = Vec::new();
    let mut parts = Vec::new();
    for (index, wanted) in (0_u32..).zip(container.volume_mounts.iter().flatten()) {
        let path = mount::sub_path(wanted, env).map_err(wrong)?;
        let mut made = volume(hands, job, manifest, container, wanted).await?;
        if made.image.is_some() {
            made.image_sub_path = path;
        } else if !path.is_empty() {
            parts.push(SubPath {
                mount_index: index,
                volume: wanted.name.clone(),
                path,
            });
        }
        mounts.push(made);
    }
    bind(hands, job, container, parts, &mut mounts).await?;
    let taken = |path: &str, mounts: &[v1::Mount]| {
        mounts
            .iter()
            .any(|m| m.container_path.trim_end_matches('/') == path)
    };
    if !taken("/etc/hosts", &mounts) {
        let file = hosts::write(hands, manifest, ips)
            .map_err(|e| wrong(format!("the pod's hosts file: {e}")))?;
        mounts.extend(file.map(|file| plain(&file, "/etc/hosts")));
    }
    let words = container
        .termination_message_path
        .as_deref()
        .unwrap_or_default();
    if !words.is_empty() && !taken(words, &mounts) {
        let file = files::make_termination_log(hands, &job.pod, &container.name, attempt)
            .map_err(|e| wrong(format!("the file of last words: {e}")))?;
        mounts.push(plain(&file, words));
    }
    Ok(mounts)
}

fn plain(host: &Path, container: &str) -> v1::Mount {
    v1::Mount {
        host_path: host.to_string_lossy().into_owned(),
        container_path: container.to_owned(),
        selinux_relabel: true,
        ..Default::default()
    }
}

/// Has volume-manager bind the parts of volumes that are mounted, and mounts those instead.
async fn bind(
    hands: &Hands,
    job: &Job,
    container: &Container,
    parts: Vec<SubPath>,
    mounts: &mut [v1::Mount],
) -> Result<(), Trouble> {
    if parts.is_empty() {
        return Ok(());
    }
    let indices: Vec<_> = parts.iter().map(|part| part.mount_index).collect();
    let mut request = tonic::Request::new(PrepareSubPathsRequest {
        r#ref: Some(job.pod.clone()),
        container: container.name.clone(),
        sub_paths: parts,
        cause: Some(polylet_kit::cause::of_current_span()),
    });
    request.set_timeout(PREPARING);
    let answer = hands.volumes.clone().prepare_sub_paths(request).await;
    let bound = answer
        .map_err(|status| wrong(status.message()))?
        .into_inner()
        .host_paths;
    if bound.len() != indices.len() {
        return Err(wrong("not every subPath of the container was prepared"));
    }
    for (index, host_path) in indices.into_iter().zip(bound) {
        let mount = usize::try_from(index).ok().and_then(|i| mounts.get_mut(i));
        if let Some(mount) = mount {
            mount.host_path = host_path;
        }
    }
    Ok(())
}

/// Whether read-only goes all the way down, by what the runtime says of itself now.
async fn recursive(
    hands: &Hands,
    manifest: &Manifest,
    wanted: &VolumeMount,
) -> Result<bool, Trouble> {
    if let Some(known) = mount::recursive_read_only(wanted).map_err(wrong)? {
        return Ok(known);
    }
    let status = hands.runtime.status().await;
    let status = status.map_err(|error| wrong(error.message()))?;
    let handler = runtime_class::handler(hands, manifest).await?;
    let features = status
        .runtime_handlers
        .into_iter()
        .find(|h| h.name == handler);
    let features = features.and_then(|handler| handler.features);
    let supported = features.is_some_and(|features| features.recursive_read_only_mounts);
    mount::as_supported(wanted, supported).map_err(wrong)
}

async fn volume(
    hands: &Hands,
    job: &Job,
    manifest: &Manifest,
    container: &Container,
    wanted: &VolumeMount,
) -> Result<v1::Mount, Trouble> {
    let name = &wanted.name;
    let declared = manifest
        .spec()
        .volumes
        .iter()
        .flatten()
        .find(|v| v.name == *name);
    let unknown = || {
        wrong(format!(
            "cannot find volume \"{name}\" to mount into container \"{}\"",
            container.name
        ))
    };
    let declared = declared.ok_or_else(unknown)?;
    let container_path = absolute(&wanted.mount_path);
    let read_only = is_read_only(declared) || wanted.read_only == Some(true);
    if let Some(mount) = image::volume::mount(hands, manifest, wanted, &container_path).await? {
        return Ok(mount);
    }
    let mounted = job.volumes.iter().find(|v| v.name == *name && v.mounted);
    let mounted = mounted.ok_or_else(unknown)?;
    Ok(v1::Mount {
        container_path,
        host_path: mounted.host_path.clone(),
        readonly: read_only,
        recursive_read_only: recursive(hands, manifest, wanted).await?,
        selinux_relabel: declared.host_path.is_none(),
        propagation: match wanted.mount_propagation.as_deref() {
            Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
            Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
            _ => v1::MountPropagation::PropagationPrivate,
        }
        .into(),
        ..Default::default()
    })
}

/// Whether nobody may write to it, whatever a container's mount says: what the node writes from
/// objects, and what the pod itself declares so. A driver need not enforce the latter.
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
    fn what_is_declared_read_only_is_so_in_every_container() {
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
