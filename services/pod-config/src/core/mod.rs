//! Decisions, without I/O or a clock: what a manifest file or a URL response contains, the identity
//! of its pods, whether they are valid, and how the manifests of one source are merged.

pub mod adoption;
pub mod canonical;
pub mod cluster;
pub mod decode;
pub mod field;
pub mod identity;
mod json_text;
pub mod kubelet_uid;
pub mod mask;
pub mod merge;
pub mod object;
pub mod parse;
pub mod removals;
pub mod state;
pub mod typed;
pub mod validate;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use jiff::Timestamp;
use polylet_kit::config::KeepSecrets;
use serde::{Deserialize, Serialize};

/// A source of static pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StaticPodSource {
    /// `staticPodPath`: a manifest directory or a single file.
    File,
    /// `staticPodURL`: a manifest on a web server.
    Http,
}

impl StaticPodSource {
    /// Value of the annotation `kubernetes.io/config.source`.
    pub fn annotation(self) -> &'static str {
        match self {
            StaticPodSource::File => "file",
            StaticPodSource::Http => "http",
        }
    }

    /// Prefix of the origin in the input of the uid hash, as in the kubelet.
    pub fn hash_prefix(self) -> &'static str {
        match self {
            StaticPodSource::File => "file:",
            StaticPodSource::Http => "url:",
        }
    }
}

/// A valid static pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticPod {
    /// Generated or set by the manifest, see [`identity`].
    pub uid: String,
    /// Namespace, defaulted.
    pub namespace: String,
    /// `<metadata.name>-<node name>`.
    pub name: String,
    /// Digest of the manifest.
    pub digest: String,
    /// When this uid was first seen.
    pub first_seen: Timestamp,
    /// When this uid was last removed, if it was added again since; unknown to former versions.
    #[serde(default)]
    pub removed_at: Option<Timestamp>,
    /// The complete `v1.Pod` as canonical JSON.
    #[serde(with = "json_text")]
    pub manifest: Bytes,
    /// Position in its manifest file.
    pub location: String,
}

impl StaticPod {
    /// Namespace and name, which are unique within a source.
    pub fn full_name(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

/// Kind, namespace and name of an object that pods refer to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    /// Kind: `Secret`, `ConfigMap`, `RuntimeClass` and so on.
    pub kind: String,
    /// Namespace, defaulted; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Object name.
    pub name: String,
}

impl ObjectId {
    /// Whether the object may be kept on disk.
    pub fn is_persisted(&self, keep_secrets: KeepSecrets) -> bool {
        keep_secrets == KeepSecrets::Disk || self.kind != "Secret"
    }
}

/// A valid Secret, ConfigMap or RuntimeClass from a manifest file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalObject {
    /// Kind and name.
    pub key: ObjectId,
    /// The complete object as canonical JSON.
    #[serde(with = "json_text")]
    pub manifest: Bytes,
    /// Position in its manifest file.
    pub location: String,
}

/// Manual, so that no value of a Secret is printed.
impl std::fmt::Debug for LocalObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalObject")
            .field("key", &self.key)
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}
