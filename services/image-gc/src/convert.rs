//! Wire to domain and back.

use polylet_model::image;
use polylet_model::pod::Manifest;
use polylet_wire::imagegc::v1 as wire;
use polylet_wire::runtime::v1 as cri;

use crate::core::records::{Listed, Look};

/// An image of the runtime's list. Its names are tags and digests.
pub(crate) fn listed(image: cri::Image) -> Listed {
    let mut names = image.repo_tags;
    names.extend(image.repo_digests);
    Listed {
        id: image.id,
        names,
        size_bytes: image.size,
        pinned: image.pinned,
    }
}

/// An item of the stream.
pub(crate) fn item(look: &Look, image: &Listed) -> wire::Image {
    wire::Image {
        id: image.id.clone(),
        names: image.names.clone(),
        size_bytes: image.size_bytes,
        in_use: look.in_use(image),
        pinned: image.pinned,
    }
}

/// The images that a pod names, in full form: those of its containers and of its image volumes.
pub(crate) fn wanted(manifest: &Manifest) -> Vec<String> {
    let containers = manifest
        .all_containers()
        .filter_map(|(_, container)| container.image.as_deref());
    let volumes = manifest.spec().volumes.iter().flatten();
    let volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    containers
        .chain(volumes)
        .map(|reference| image::normalize(reference).unwrap_or_else(|_| reference.to_owned()))
        .collect()
}
