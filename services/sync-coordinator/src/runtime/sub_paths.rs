//! SubPaths of volumes that a container mounts. volume-manager prepares them, which may take as long
//! as the volume hangs: it happens in a step of its own, before the container's start permit.

use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use polylet_model::Manifest;
use polylet_model::constants::reason;
use polylet_model::env::Environment;
use polylet_wire::volume::v1::{PrepareSubPathsRequest, SubPath};

use super::{RuntimeManager, StepContext, env, failure, image, require_manifest};
use crate::core::step::{PreparedSubPath, StepFailure, StepOutcome};
use crate::core::volume_mount;

/// The timeout of the call; volume-manager's own timeout is shorter.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(15);

/// Has the subPaths of a container prepared.
pub async fn prepare(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
    container: &str,
    sandbox_id: &str,
) -> Result<StepOutcome, StepFailure> {
    let manifest = require_manifest(context)?;
    let (_, spec) = manifest
        .container(container)
        .ok_or_else(|| config_error(format!("container {container} is not in the manifest")))?;
    let env = env::environment(manager, context, manifest, spec, sandbox_id).await?;
    let prepared = prepared(manager, context, manifest, spec, &env).await?;
    Ok(StepOutcome::SubPathsPrepared(prepared))
}

/// The prepared subPaths of a container: those of the earlier step, unless paths have changed since
/// with the variables in them.
pub async fn prepared(
    manager: &RuntimeManager,
    context: &StepContext,
    manifest: &Manifest,
    container: &Container,
    env: &Environment,
) -> Result<Vec<PreparedSubPath>, StepFailure> {
    let requested = requested(manifest, container, env)?;
    if requested.is_empty() || covers(&context.sub_paths, &requested) {
        return Ok(context.sub_paths.clone());
    }
    let mut request = tonic::Request::new(PrepareSubPathsRequest {
        r#ref: Some(context.pod.clone()),
        container: container.name.clone(),
        sub_paths: requested.clone(),
        cause: Some(polylet_kit::cause::from_current_span()),
    });
    request.set_timeout(PREPARE_TIMEOUT);
    let response = manager.volumes.clone().prepare_sub_paths(request).await;
    let host_paths = response
        .map_err(|status| config_error(status.message()))?
        .into_inner()
        .host_paths;
    if host_paths.len() != requested.len() {
        return Err(config_error(
            "not every subPath of the container was prepared",
        ));
    }
    let prepared = requested.into_iter().zip(host_paths);
    let prepared = prepared.map(|(requested, host_path)| PreparedSubPath {
        mount_index: requested.mount_index,
        volume: requested.volume,
        path: requested.path,
        host_path,
    });
    Ok(prepared.collect())
}

/// The subPaths in volumes other than images, whose subPaths the runtime resolves.
fn requested(
    manifest: &Manifest,
    container: &Container,
    env: &Environment,
) -> Result<Vec<SubPath>, StepFailure> {
    let mut sub_paths = Vec::new();
    for (mount_index, mount) in (0_u32..).zip(container.volume_mounts.iter().flatten()) {
        let path = volume_mount::sub_path(mount, env).map_err(config_error)?;
        if !path.is_empty() && !image::volume::is_image(manifest, &mount.name) {
            sub_paths.push(SubPath {
                mount_index,
                volume: mount.name.clone(),
                path,
            });
        }
    }
    Ok(sub_paths)
}

fn covers(prepared: &[PreparedSubPath], requested: &[SubPath]) -> bool {
    let matches = |prepared: &PreparedSubPath, requested: &SubPath| {
        (prepared.mount_index, &prepared.volume, &prepared.path)
            == (requested.mount_index, &requested.volume, &requested.path)
    };
    prepared.len() == requested.len() && prepared.iter().zip(requested).all(|(p, r)| matches(p, r))
}

fn config_error(message: impl Into<String>) -> StepFailure {
    failure(reason::CREATE_CONTAINER_CONFIG_ERROR, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_paths_are_used_only_for_the_same_mounts() {
        let requested = |path: &str| SubPath {
            mount_index: 1,
            volume: "data".to_owned(),
            path: path.to_owned(),
        };
        let prepared = [PreparedSubPath {
            mount_index: 1,
            volume: "data".to_owned(),
            path: "a".to_owned(),
            host_path: "/prepared/1".to_owned(),
        }];
        assert!(covers(&prepared, &[requested("a")]));
        assert!(!covers(&prepared, &[requested("b")]));
        assert!(!covers(&prepared, &[requested("a"), requested("a")]));
        assert!(!covers(&[], &[requested("a")]));
    }
}
