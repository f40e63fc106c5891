//! A container's mounts: volumes, /etc/hosts, last words.

use std::path::{Component, Path};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;
use polylet_model::env::Environment;

use super::{Hands, Job, files, hosts, said};
use crate::core::learn::Trouble;

fn wrong(message: impl Into<String>) -> Trouble {
    said(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

/// How long a volume may take to show a part of it.
const PREPARING: Duration = Duration::from_secs(10);

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
    for wanted in container.volume_mounts.iter().flatten() {
        mounts.push(volume(job, manifest, wanted, env).await?);
    }
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

async fn volume(
    job: &Job,
    manifest: &Manifest,
    wanted: &VolumeMount,
    env: &Environment,
) -> Result<v1::Mount, Trouble> {
    let name = &wanted.name;
    let declared = manifest
        .spec()
        .volumes
        .iter()
        .flatten()
        .find(|v| v.name == *name);
    let declared = declared
        .ok_or_else(|| wrong(format!("volume \"{name}\" of the mount is not in the pod")))?;
    let sub_path = match wanted.sub_path_expr.as_deref().filter(|p| !p.is_empty()) {
        Some(expression) => env.expand(expression),
        None => wanted.sub_path.clone().unwrap_or_default(),
    };
    let container_path = absolute(&wanted.mount_path);
    // What the node writes from objects is nobody else's to write, as upstream has it.
    let is_data = declared.secret.is_some()
        || declared.config_map.is_some()
        || declared.projected.is_some()
        || declared.downward_api.is_some();
    let read_only = is_data || wanted.read_only == Some(true);
    if let Some(image) = &declared.image {
        let image = image.reference.clone().unwrap_or_default();
        return Ok(v1::Mount {
            container_path,
            readonly: true,
            image: Some(v1::ImageSpec {
                user_specified_image: image.clone(),
                image,
                ..Default::default()
            }),
            image_sub_path: sub_path,
            ..Default::default()
        });
    }
    let mounted = job.volumes.iter().find(|v| v.name == *name && v.mounted);
    let mounted = mounted.ok_or_else(|| wrong(format!("volume \"{name}\" is not mounted")))?;
    let host_path = if sub_path.is_empty() {
        mounted.host_path.clone()
    } else {
        prepared(mounted.host_path.clone(), sub_path).await?
    };
    Ok(v1::Mount {
        container_path,
        host_path,
        readonly: read_only,
        recursive_read_only: read_only && wanted.recursive_read_only.as_deref() == Some("Enabled"),
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

fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

/// [`below`], away from the process's own thread: the volume may be one that answers no more.
async fn prepared(volume: String, sub_path: String) -> Result<String, Trouble> {
    let what = format!("subPath \"{sub_path}\"");
    let making = tokio::task::spawn_blocking(move || below(&volume, &sub_path));
    match tokio::time::timeout(PREPARING, making).await {
        Ok(Ok(made)) => made,
        Ok(Err(error)) => Err(wrong(format!("{what}: {error}"))),
        Err(_) => Err(wrong(format!("{what}: its volume does not answer"))),
    }
}

/// A place below a volume, made with the mode of the volume's own root where it is not there yet. A link on the way
/// that leads out of the volume is refused.
fn below(volume: &str, sub_path: &str) -> Result<String, Trouble> {
    let sub = Path::new(sub_path);
    if sub.is_absolute()
        || sub
            .components()
            .any(|part| matches!(part, Component::ParentDir))
    {
        return Err(wrong(format!(
            "subPath \"{sub_path}\" must stay below its volume"
        )));
    }
    let failed =
        |error: std::io::Error| wrong(format!("failed to prepare subPath \"{sub_path}\": {error}"));
    let root = std::fs::canonicalize(volume).map_err(failed)?;
    let mode = std::fs::metadata(&root).map_err(failed)?.permissions();
    let mut place = root.clone();
    for part in sub.components() {
        let Component::Normal(part) = part else {
            continue;
        };
        let next = place.join(part);
        match std::fs::canonicalize(&next) {
            Ok(real) if real.starts_with(&root) => place = real,
            Ok(_) => {
                return Err(wrong(format!(
                    "subPath \"{sub_path}\" leads out of its volume"
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                files::make_dir(&next, 0o750).map_err(failed)?;
                std::fs::set_permissions(&next, mode.clone()).map_err(failed)?;
                place = next;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(place.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_paths_stay_below() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink("in", root.join("link")).unwrap();
        std::fs::create_dir(root.join("in")).unwrap();
        let at = root.to_str().unwrap();
        assert!(below(at, "new/deep").unwrap().ends_with("volume/new/deep"));
        assert!(below(at, "link").unwrap().ends_with("volume/in"));
        for bad in ["out", "out/passwd", "../x", "a/../../x", "/etc"] {
            assert!(below(at, bad).is_err(), "{bad}");
        }
    }
}
