//! When each image was first detected and last used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use polylet_model::image;
use serde::{Deserialize, Serialize};

/// An image in the runtime's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedImage {
    /// The runtime's id.
    pub id: String,
    /// Tags and digests.
    pub names: Vec<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The runtime's configuration excludes it from garbage collection.
    pub pinned: bool,
}

impl ListedImage {
    /// Whether `reference`, from a pod or a container, names this image.
    pub fn matches(&self, reference: &str) -> bool {
        self.id == reference
            || self.id.strip_prefix("sha256:") == Some(reference)
            || self.names.iter().any(|name| is_named(name, reference))
    }
}

/// Whether `reference` has this name of an image. The runtime lists an image that was pulled by tag and
/// digest, `r/x:1@sha256:…`, without the tag.
fn is_named(name: &str, reference: &str) -> bool {
    if name == reference {
        return true;
    }
    let Some((repository, digest)) = name.split_once('@') else {
        return false;
    };
    let has_digest = reference
        .split_once('@')
        .is_some_and(|(_, of)| of == digest);
    has_digest && image::without_tag(reference) == Some(repository)
}

/// The ages of one image. Stored on disk, to outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// When it was first listed.
    pub first_detected: Timestamp,
    /// When a container that uses it was last listed.
    pub last_used: Option<Timestamp>,
}

/// Records by image id.
pub type ImageRecords = BTreeMap<String, ImageRecord>;

/// The images in the runtime and their uses at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSnapshot {
    /// All images.
    pub images: Vec<ListedImage>,
    /// Image references of all containers, running or exited.
    pub container_references: BTreeSet<String>,
    /// Image references in the specs of this node's pods that have not finished, normalized.
    pub pod_references: BTreeSet<String>,
}

impl ImageSnapshot {
    /// Whether a container, running or exited, uses the image.
    pub fn in_use(&self, image: &ListedImage) -> bool {
        self.container_references
            .iter()
            .any(|reference| image.matches(reference))
    }

    /// Whether a pod of this node names the image.
    pub fn is_referenced(&self, image: &ListedImage) -> bool {
        self.pod_references
            .iter()
            .any(|reference| image.matches(reference))
    }
}

/// The records after a snapshot: new images are detected now, used ones are used now, and those of
/// removed images are dropped.
pub fn update(records: &ImageRecords, snapshot: &ImageSnapshot, now: Timestamp) -> ImageRecords {
    snapshot
        .images
        .iter()
        .map(|image| {
            let previous = records.get(&image.id);
            let record = ImageRecord {
                first_detected: previous.map_or(now, |record| record.first_detected),
                last_used: if snapshot.in_use(image) {
                    Some(now)
                } else {
                    previous.and_then(|record| record.last_used)
                },
            };
            (image.id.clone(), record)
        })
        .collect()
}
