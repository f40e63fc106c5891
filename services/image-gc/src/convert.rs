//! Wire messages to domain types, and back.

use polylet_wire::imagegc::v1 as wire;
use polylet_wire::runtime::v1 as cri;

use crate::core::records::{ImageSnapshot, ListedImage};

/// An image of the runtime's list.
pub(crate) fn listed_image(image: cri::Image) -> ListedImage {
    let mut names = image.repo_tags;
    names.extend(image.repo_digests);
    ListedImage {
        id: image.id,
        names,
        size_bytes: image.size,
        pinned: image.pinned,
    }
}

/// An image as an item of the state stream.
pub(crate) fn image(snapshot: &ImageSnapshot, image: &ListedImage) -> wire::Image {
    wire::Image {
        id: image.id.clone(),
        names: image.names.clone(),
        size_bytes: image.size_bytes,
        in_use: snapshot.in_use(image),
        pinned: image.pinned,
    }
}
