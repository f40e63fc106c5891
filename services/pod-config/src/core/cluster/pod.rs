//! Pods of the API server: the published manifest without fields that change on their own, the
//! status apart from it, and mirror pods apart from other pods.

use bytes::Bytes;
use jiff::Timestamp;
use polylet_model::constants::pod_annotation::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, source};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::canonical::{self, PodText};
use super::super::{field, typed};
use super::kinds::normalize;

/// A pod that is bound to this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiPod {
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Digest of the manifest, which does not depend on the status.
    pub digest: String,
    /// Canonical JSON without status, managed fields and resource version, with the annotations for
    /// the source and for the time when the pod was first seen.
    pub manifest: Bytes,
    /// `v1.PodStatus` of the API server, as JSON.
    pub status: Bytes,
}

/// The mirror pod of a static pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiMirrorPod {
    /// Uid of the mirror pod.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Config hash of the static pod, which is its uid.
    pub source_pod_uid: String,
    /// Whether the mirror pod has a deletion timestamp.
    pub deleting: bool,
    /// `v1.PodStatus` as JSON.
    pub status: Bytes,
    /// Uid of the Node that owns the mirror pod, or empty.
    pub owner_node_uid: String,
}

/// Manifest and digest of a pod as published before a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedManifest {
    /// See [`ApiPod::manifest`].
    pub manifest: Bytes,
    /// See [`ApiPod::digest`].
    pub digest: String,
}

/// A pod object by its role.
#[derive(Clone, Debug, PartialEq)]
pub enum Classified {
    /// A pod to run.
    Pod(ApiPod),
    /// A mirror pod, whose static pod runs.
    Mirror(ApiMirrorPod),
    /// An object that is no valid pod.
    Invalid {
        /// `namespace/name`, as far as present.
        name: String,
        /// Uid, or empty.
        uid: String,
        /// The first problem.
        error: field::Error,
    },
}

/// Classifies a received pod, which is first seen `now` unless it was published before. A manifest
/// that has not changed, as with every change of the status, is neither validated nor hashed again,
/// and shares the memory of the published one.
pub fn classify(
    mut pod: Value,
    published: impl FnOnce(&str) -> Option<PublishedManifest>,
    now: Timestamp,
) -> Classified {
    let text = |path: &str| {
        let text = pod.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let (uid, namespace, name) = (
        text("/metadata/uid"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    );
    let invalid = |error| Classified::Invalid {
        name: format!("{namespace}/{name}"),
        uid: uid.clone(),
        error,
    };
    if uid.is_empty() || name.is_empty() {
        return invalid(field::Error::new("metadata", "name and uid are required"));
    }
    let status = pod.as_object_mut().and_then(|pod| pod.remove("status"));
    let status = canonical::to_bytes(&status.unwrap_or_else(|| Value::Object(Map::new())));
    if let Some(source_pod_uid) = annotation(&pod, CONFIG_MIRROR) {
        return Classified::Mirror(ApiMirrorPod {
            source_pod_uid: source_pod_uid.to_owned(),
            deleting: pod.pointer("/metadata/deletionTimestamp").is_some(),
            owner_node_uid: owner_node(&pod),
            uid,
            namespace,
            name,
            status,
        });
    }
    normalize(&mut pod, "v1", "Pod");
    let published = published(&uid);
    let first_seen = published
        .as_ref()
        .and_then(|published| parse_first_seen(&published.manifest));
    if let Some(annotations) = metadata(&mut pod).and_then(annotations) {
        let first_seen = first_seen.unwrap_or(now).to_string();
        annotations.insert(CONFIG_SOURCE.to_owned(), source::API.into());
        annotations.insert(CONFIG_SEEN.to_owned(), first_seen.into());
    }
    let text = PodText::new(&pod);
    let manifest = match published.filter(|old| old.manifest == text.as_bytes()) {
        Some(unchanged) => unchanged,
        None => {
            if let Err(error) = typed::pod(&pod) {
                return invalid(error);
            }
            PublishedManifest {
                digest: text.digest(),
                manifest: text.into_bytes(),
            }
        }
    };
    Classified::Pod(ApiPod {
        uid,
        namespace,
        name,
        digest: manifest.digest,
        manifest: manifest.manifest,
        status,
    })
}

/// Whether the API server's next change of a pod is its removal. The end of a deletion is two changes: the grace
/// period becomes zero, and then, without finalizers, the object is gone.
pub fn is_about_to_go(object: &Value) -> bool {
    let grace_period = object.pointer("/metadata/deletionGracePeriodSeconds");
    let finalizers = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    grace_period.and_then(Value::as_i64) == Some(0) && finalizers.is_none_or(Vec::is_empty)
}

/// Whether a published manifest has a deletion timestamp.
pub fn is_deleted(manifest: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct WithDeletion {
        metadata: DeletionMetadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DeletionMetadata {
        deletion_timestamp: Option<String>,
    }
    let pod: Result<WithDeletion, _> = serde_json::from_slice(manifest);
    pod.is_ok_and(|pod| pod.metadata.deletion_timestamp.is_some())
}

/// Reads the time when a pod was first seen from a published manifest.
pub fn parse_first_seen(manifest: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct WithSeen {
        metadata: SeenMetadata,
    }
    #[derive(Deserialize)]
    struct SeenMetadata {
        annotations: SeenAnnotations,
    }
    #[derive(Deserialize)]
    struct SeenAnnotations {
        #[serde(rename = "kubernetes.io/config.seen")]
        seen: Timestamp,
    }
    let pod: WithSeen = serde_json::from_slice(manifest).ok()?;
    Some(pod.metadata.annotations.seen)
}

/// The creation timestamp of a received pod.
pub fn creation_timestamp(pod: &Value) -> Option<Timestamp> {
    pod.pointer("/metadata/creationTimestamp")?
        .as_str()?
        .parse()
        .ok()
}

/// Reads the creation timestamp from a published manifest.
pub fn parse_creation_timestamp(manifest: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct WithCreation {
        metadata: CreationMetadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreationMetadata {
        creation_timestamp: Option<Timestamp>,
    }
    serde_json::from_slice::<WithCreation>(manifest)
        .ok()?
        .metadata
        .creation_timestamp
}

/// Reads the phase from a status.
pub fn parse_phase(status: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct WithPhase {
        phase: Option<String>,
    }
    serde_json::from_slice::<WithPhase>(status).ok()?.phase
}

/// Reads the start time from a status.
pub fn parse_start_time(status: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WithStartTime {
        start_time: Option<Timestamp>,
    }
    serde_json::from_slice::<WithStartTime>(status)
        .ok()?
        .start_time
}

fn metadata(pod: &mut Value) -> Option<&mut Map<String, Value>> {
    pod.get_mut("metadata")?.as_object_mut()
}

fn annotations(metadata: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    let annotations = metadata.entry("annotations");
    annotations
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn owner_node(pod: &Value) -> String {
    let owners = pod.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
    let node = owners.find(|owner| owner["kind"] == "Node" && owner["apiVersion"] == "v1");
    let uid = node.and_then(|node| node["uid"].as_str());
    uid.unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
