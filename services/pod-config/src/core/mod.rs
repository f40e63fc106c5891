//! The decisions: what a file or an answer holds, who its pods are, whether they can be accepted,
//! and what all origins of a source come to together. No input or output, no clock.

pub mod accept;
pub mod canonical;
pub mod cluster;
pub mod decode;
pub mod identity;
pub mod kept;
pub mod merge;
pub mod object;
pub mod typed;
pub mod validate;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a set of pods comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The manifest directory, or a single file.
    File,
    /// A URL.
    Http,
}

impl Source {
    /// The value of the annotation `kubernetes.io/config.source`.
    pub fn annotation(self) -> &'static str {
        match self {
            Source::File => "file",
            Source::Http => "http",
        }
    }

    /// What upstream puts before the origin when it hashes a pod's identity.
    pub fn hash_prefix(self) -> &'static str {
        match self {
            Source::File => "file:",
            Source::Http => "url:",
        }
    }
}

/// One thing found wrong within an origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Which part of the origin: `document 2`, `item 3`, or nothing when it is all of it.
    pub place: String,
    /// Path of the field, or nothing.
    pub field: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Finding {
    /// A finding about a field; the place is filled in by whoever knows it.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Finding {
            place: String::new(),
            field: field.into(),
            message: message.into(),
        }
    }

    /// The same, at a place.
    pub fn at(mut self, place: &str) -> Self {
        self.place = place.to_owned();
        self
    }
}

/// A pod that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodItem {
    /// Identity, see [`identity`].
    pub uid: String,
    /// Namespace, defaulted.
    pub namespace: String,
    /// Name with the node's name behind it.
    pub name: String,
    /// Tells same from different.
    pub digest: String,
    /// First sight of this identity.
    pub seen: Timestamp,
    /// The complete pod as canonical JSON.
    #[serde(with = "shared_text")]
    pub manifest: Arc<str>,
    /// Which part of its origin it stands in.
    pub place: String,
}

impl PodItem {
    /// Namespace and name: what may be there once only.
    pub fn full_name(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

/// Names a Secret, ConfigMap or RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// `Secret`, `ConfigMap` or `RuntimeClass`.
    pub kind: String,
    /// Namespace, defaulted; empty of a RuntimeClass, which is the whole node's.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A Secret, ConfigMap or RuntimeClass that was accepted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectItem {
    /// Its name.
    pub key: ObjectKey,
    /// The complete object as canonical JSON.
    #[serde(with = "shared_text")]
    pub manifest: Arc<str>,
    /// Which part of its origin it stands in.
    pub place: String,
}

/// By hand, so that no value of a Secret gets into a message.
impl std::fmt::Debug for ObjectItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectItem")
            .field("key", &self.key)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Shared text in kept files.
mod shared_text {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Arc::from)
    }
}
