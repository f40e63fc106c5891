//! What is remembered of each image between looks: when it was first seen and last used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An image as the runtime lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The runtime's id.
    pub id: String,
    /// Tags and digests.
    pub names: Vec<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// The runtime keeps it.
    pub pinned: bool,
}

impl Listed {
    /// Whether `reference`, as a pod or a container gives it, means this image.
    pub fn answers_to(&self, reference: &str) -> bool {
        self.id == reference
            || self.id.strip_prefix("sha256:") == Some(reference)
            || self.names.iter().any(|name| name == reference)
    }
}

/// Ages of one image. Kept on disk, so that they do not start anew with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ages {
    /// When it was seen first.
    pub first_detected: Timestamp,
    /// When a container was seen last that was made from it.
    pub last_used: Option<Timestamp>,
}

/// Ages by image id.
pub type Records = BTreeMap<String, Ages>;

/// One look at the runtime and at what pods want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// All images.
    pub images: Vec<Listed>,
    /// References of all containers, running or dead.
    pub used: BTreeSet<String>,
    /// References in the specs of accepted pods, normalised.
    pub wanted: BTreeSet<String>,
}

impl Look {
    /// Whether a container, running or dead, was made from the image.
    pub fn in_use(&self, image: &Listed) -> bool {
        self.used
            .iter()
            .any(|reference| image.answers_to(reference))
    }

    /// Whether a pod of this node names the image.
    pub fn wanted(&self, image: &Listed) -> bool {
        self.wanted
            .iter()
            .any(|reference| image.answers_to(reference))
    }
}

/// The records after a look: new images appear now, used ones were used now, vanished ones go.
pub fn observe(records: &Records, look: &Look, now: Timestamp) -> Records {
    look.images
        .iter()
        .map(|image| {
            let known = records.get(&image.id);
            let ages = Ages {
                first_detected: known.map_or(now, |ages| ages.first_detected),
                last_used: if look.in_use(image) {
                    Some(now)
                } else {
                    known.and_then(|ages| ages.last_used)
                },
            };
            (image.id.clone(), ages)
        })
        .collect()
}
