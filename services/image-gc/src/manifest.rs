//! The fields of a pod's manifest that image-gc needs. Everything else is skipped while parsing.

use polylet_model::image;
use serde::Deserialize;

/// The paths of these fields, for a field mask.
pub(crate) const FIELDS: [&str; 4] = [
    "spec.containers.image",
    "spec.initContainers.image",
    "spec.ephemeralContainers.image",
    "spec.volumes.image.reference",
];

/// A pod, without all other fields.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PodImages {
    spec: PodImagesSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodImagesSpec {
    containers: Option<Vec<ContainerImage>>,
    init_containers: Option<Vec<ContainerImage>>,
    ephemeral_containers: Option<Vec<ContainerImage>>,
    volumes: Option<Vec<VolumeImage>>,
}

#[derive(Debug, Deserialize)]
struct ContainerImage {
    image: Option<String>,
}

#[derive(Debug, Deserialize)]
struct VolumeImage {
    image: Option<ImageVolumeSource>,
}

#[derive(Debug, Deserialize)]
struct ImageVolumeSource {
    reference: Option<String>,
}

impl PodImages {
    pub(crate) fn from_json(manifest: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(manifest)
    }

    /// The image references of the pod's containers and image volumes, normalized.
    pub(crate) fn into_image_references(self) -> Vec<String> {
        let PodImagesSpec {
            containers,
            init_containers,
            ephemeral_containers,
            volumes,
        } = self.spec;
        let containers = [containers, init_containers, ephemeral_containers]
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|container| container.image);
        let volumes = volumes
            .into_iter()
            .flatten()
            .filter_map(|volume| volume.image?.reference);
        containers
            .chain(volumes)
            .map(|reference| image::normalize(&reference).unwrap_or(reference))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_of_all_containers_and_volumes_are_read() {
        let manifest = json!({
            "metadata": {"name": "web", "annotations": {"large": "value"}},
            "spec": {
                "containers": [{"name": "a", "image": "nginx"}, {"name": "b"}],
                "initContainers": [{"name": "i", "image": "registry.example/init:1"}],
                "ephemeralContainers": [{"name": "e", "image": "busybox:2"}],
                "volumes": [
                    {"name": "v", "image": {"reference": "data:3"}},
                    {"name": "w", "emptyDir": {}},
                ],
            },
        });
        let read = |manifest: serde_json::Value| {
            PodImages::from_json(manifest.to_string().as_bytes()).map(|m| m.into_image_references())
        };
        assert_eq!(
            read(manifest).unwrap(),
            [
                "docker.io/library/nginx:latest",
                "registry.example/init:1",
                "docker.io/library/busybox:2",
                "docker.io/library/data:3",
            ]
        );
        let empty: [&str; 0] = [];
        assert_eq!(read(json!({"spec": {"containers": null}})).unwrap(), empty);
        assert!(read(json!([])).is_err());
        assert!(FIELDS.iter().all(|field| field.starts_with("spec.")));
    }
}
