//! Image volumes: images mounted as a directory. They are pulled like the container's own image before
//! its creation; the runtime mounts them.

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;

use super::super::{RuntimeManager, failure};
use super::PullTarget;
use super::inspect::{image_spec, inspect};
use crate::core::pod_spec::PullPolicy;
use crate::core::step::StepFailure;

/// The images of the volumes that a container mounts, each once, in the order of its mounts.
pub fn pull_targets(manifest: &Manifest, container: &Container) -> Vec<PullTarget> {
    let mut all: Vec<PullTarget> = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let target = pull_target(manifest, &mount.name);
        if let Some(target) = target.filter(|target| !all.contains(target)) {
            all.push(target);
        }
    }
    all
}

/// Whether the volume of this name is an image.
pub fn is_image(manifest: &Manifest, volume: &str) -> bool {
    pull_target(manifest, volume).is_some()
}

/// The image of a volume; `None` for a volume of another type.
fn pull_target(manifest: &Manifest, volume: &str) -> Option<PullTarget> {
    let mut volumes = manifest.spec().volumes.iter().flatten();
    let image = volumes.find(|v| v.name == volume)?.image.as_ref()?;
    Some(PullTarget {
        reference: image.reference.clone().unwrap_or_default(),
        policy: PullPolicy::from_name(image.pull_policy.as_deref()),
        volume: true,
    })
}

/// The mount of an image volume; `None` for a volume of another type.
///
/// # Errors
/// The image was removed since its pull: it is pulled again.
pub async fn mount(
    manager: &RuntimeManager,
    manifest: &Manifest,
    volume_mount: &VolumeMount,
    container_path: &str,
) -> Result<Option<v1::Mount>, StepFailure> {
    let Some(image) = pull_target(manifest, &volume_mount.name) else {
        return Ok(None);
    };
    let spec = image_spec(manager, manifest, &image.reference).await?;
    let found = inspect(manager, spec.clone()).await?;
    let found = found.ok_or_else(|| StepFailure {
        image_missing: true,
        ..failure(
            reason::CREATE_CONTAINER_ERROR,
            format!(
                "image \"{}\" of volume \"{}\" is no longer present",
                image.reference, volume_mount.name
            ),
        )
    })?;
    Ok(Some(v1::Mount {
        container_path: container_path.to_owned(),
        readonly: true,
        image: Some(v1::ImageSpec {
            image: found,
            user_specified_image: image.reference,
            ..spec
        }),
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::test_manifest;
    use super::*;

    #[test]
    fn mounted_images_are_pulled_once() {
        let manifest = test_manifest(json!({
            "containers": [{"name": "a", "image": "a:1", "volumeMounts": [
                {"name": "data", "mountPath": "/d"}, {"name": "plain", "mountPath": "/p"},
                {"name": "data", "mountPath": "/e"}]}],
            "volumes": [{"name": "data", "image": {"reference": "r/x:1", "pullPolicy": "Never"}},
                {"name": "plain", "emptyDir": {}}, {"name": "other", "image": {"reference": "r/y"}}],
        }));
        let (_, container) = manifest.container("a").unwrap();
        let all = pull_targets(&manifest, container);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].reference, "r/x:1");
    }
}
