//! Image volumes: images that a container sees as a directory. Pulled like the container's own
//! image before it is made; the runtime mounts them.

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use polylet_cri::v1;
use polylet_model::Manifest;
use polylet_model::constants::reason;

use super::super::{Hands, said};
use super::{Wanted, ensure};
use crate::core::learn::Trouble;
use crate::core::wanted::Pull;

/// The images of the volumes that a container mounts, each once, in the order of its mounts.
pub fn wanted(manifest: &Manifest, container: &Container) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        if let Some(wanted) = of(manifest, &mount.name).filter(|wanted| !all.contains(wanted)) {
            all.push(wanted);
        }
    }
    all
}

/// The image of a volume; none of a volume of another kind.
fn of(manifest: &Manifest, volume: &str) -> Option<Wanted> {
    let mut volumes = manifest.spec().volumes.iter().flatten();
    let image = volumes.find(|v| v.name == volume)?.image.as_ref()?;
    Some(Wanted {
        reference: image.reference.clone().unwrap_or_default(),
        policy: Pull::of(image.pull_policy.as_deref()),
        volume: true,
    })
}

/// What the runtime is told of a mounted image volume; none of a volume of another kind.
///
/// # Errors
/// When the image has gone since it was pulled: it is pulled again then.
pub async fn mount(
    hands: &Hands,
    manifest: &Manifest,
    wanted: &VolumeMount,
    container_path: &str,
) -> Result<Option<v1::Mount>, Trouble> {
    let Some(image) = of(manifest, &wanted.name) else {
        return Ok(None);
    };
    let spec = ensure::spec(hands, manifest, &image.reference).await?;
    let found = ensure::look(hands, spec.clone()).await?;
    let found = found.ok_or_else(|| Trouble {
        image_missing: true,
        ..said(
            reason::CREATE_CONTAINER_ERROR,
            format!(
                "image \"{}\" of volume \"{}\" is gone",
                image.reference, wanted.name
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

    use super::super::super::manifest_of;
    use super::*;

    #[test]
    fn mounted_images_are_wanted_once() {
        let manifest = manifest_of(json!({
            "containers": [{"name": "a", "image": "a:1", "volumeMounts": [
                {"name": "data", "mountPath": "/d"}, {"name": "plain", "mountPath": "/p"},
                {"name": "data", "mountPath": "/e"}]}],
            "volumes": [{"name": "data", "image": {"reference": "r/x:1", "pullPolicy": "Never"}},
                {"name": "plain", "emptyDir": {}}, {"name": "other", "image": {"reference": "r/y"}}],
        }));
        let (_, container) = manifest.container("a").unwrap();
        let all = wanted(&manifest, container);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].reference, "r/x:1");
    }
}
