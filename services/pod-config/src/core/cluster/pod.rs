//! What of a pod from the API server is served: its manifest without what changes beside it, its
//! status apart from that, and mirrors apart from pods.

use bytes::Bytes;
use jiff::Timestamp;
use polylet_model::constants::pod_annotation::{CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, source};
use serde_json::{Map, Value};

use super::super::{Finding, canonical, typed};
use super::kinds::bare;

/// A pod that the cluster has bound to this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiPod {
    /// Identity.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Tells one manifest from another; a status makes no difference.
    pub digest: String,
    /// Canonical JSON, less status, managed fields and resource version, with the annotations that
    /// say where and when it was first seen.
    pub manifest: Bytes,
    /// `v1.PodStatus` as the cluster holds it, as JSON.
    pub status: Bytes,
}

/// The copy of a static pod in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiMirror {
    /// The copy's own uid.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The config hash of the static pod that it was made of.
    pub of: String,
    /// Its end was asked for.
    pub deleting: bool,
    /// `v1.PodStatus` as JSON.
    pub status: String,
    /// The uid of the Node that owns it; empty when no Node does.
    pub owner_node_uid: String,
}

/// Which of the two it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Sorted {
    /// To be run.
    Pod(ApiPod),
    /// A static pod's copy: run already.
    Mirror(ApiMirror),
    /// It cannot be read; the name it goes by.
    Refused {
        /// `namespace/name`, as far as they can be read.
        name: String,
        /// Its uid, if it has one.
        uid: String,
        /// What is wrong.
        finding: Finding,
    },
}

/// Sorts one out. `seen` tells when the pod of a uid was first seen.
pub fn sort(mut pod: Value, seen: impl FnOnce(&str) -> Timestamp) -> Sorted {
    let text = |field: &str| {
        let text = pod.pointer(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let (uid, namespace, name) = (
        text("/metadata/uid"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    );
    let refused = |finding| Sorted::Refused {
        name: format!("{namespace}/{name}"),
        uid: uid.clone(),
        finding,
    };
    if uid.is_empty() || name.is_empty() {
        return refused(Finding::new("metadata", "a name and a uid were expected"));
    }
    let status = pod.as_object_mut().and_then(|pod| pod.remove("status"));
    let status = canonical::text(&status.unwrap_or_else(|| Value::Object(Map::new())));
    if let Some(of) = annotation(&pod, CONFIG_MIRROR) {
        return Sorted::Mirror(ApiMirror {
            of: of.to_owned(),
            deleting: pod.pointer("/metadata/deletionTimestamp").is_some(),
            owner_node_uid: owner_node(&pod),
            uid,
            namespace,
            name,
            status,
        });
    }
    bare(&mut pod, "v1", "Pod");
    if let Err(finding) = typed::pod(&pod) {
        return refused(finding);
    }
    let digest = polylet_model::pod::digest(&pod);
    let at = seen(&uid);
    if let Some(annotations) = metadata(&mut pod).and_then(annotations) {
        annotations.insert(CONFIG_SOURCE.to_owned(), source::API.into());
        annotations.insert(CONFIG_SEEN.to_owned(), at.to_string().into());
    }
    Sorted::Pod(ApiPod {
        manifest: canonical::text(&pod).into(),
        uid,
        namespace,
        name,
        digest,
        status: status.into(),
    })
}

/// When a pod was first seen, out of a manifest that was made by [`sort`].
pub fn seen_in(manifest: &[u8]) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Pod {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        annotations: Annotations,
    }
    #[derive(serde::Deserialize)]
    struct Annotations {
        #[serde(rename = "kubernetes.io/config.seen")]
        seen: Timestamp,
    }
    let pod: Pod = serde_json::from_slice(manifest).ok()?;
    Some(pod.metadata.annotations.seen)
}

/// When the cluster made a pod; nothing when it does not say.
pub fn created(pod: &Value) -> Option<Timestamp> {
    pod.pointer("/metadata/creationTimestamp")?
        .as_str()?
        .parse()
        .ok()
}

/// The same out of a manifest that was made by [`sort`].
pub fn created_in(manifest: &[u8]) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Pod {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<Timestamp>,
    }
    serde_json::from_slice::<Pod>(manifest)
        .ok()?
        .metadata
        .creation_timestamp
}

/// The phase in a status.
pub fn phase_in(status: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Status {
        phase: Option<String>,
    }
    serde_json::from_slice::<Status>(status).ok()?.phase
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
mod tests {
    use serde_json::json;

    use super::*;

    const FIRST: Timestamp = Timestamp::UNIX_EPOCH;

    fn example() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl"}], "labels": {"a": "b"},
            },
            "spec": {"nodeName": "n", "future": {"x": 1}, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Pending"},
        })
    }

    fn pod(value: Value) -> ApiPod {
        match sort(value, |_| FIRST) {
            Sorted::Pod(pod) => pod,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_says_what_should_run_is_in_the_manifest() {
        let pod = pod(example());
        let manifest: Value = serde_json::from_slice(&pod.manifest).unwrap();
        assert_eq!(
            manifest,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "web", "namespace": "shop", "uid": "u1", "labels": {"a": "b"},
                    "annotations": {CONFIG_SOURCE: "api", CONFIG_SEEN: "1970-01-01T00:00:00Z"},
                },
                "spec": {"nodeName": "n", "future": {"x": 1}, "containers": [{"name": "c", "image": "i"}]},
            })
        );
        assert_eq!(pod.status, r#"{"phase":"Pending"}"#);
        assert_eq!(phase_in(&pod.status).as_deref(), Some("Pending"));
        assert_eq!(phase_in(b"[]"), None);
        assert_eq!(seen_in(&pod.manifest), Some(FIRST));
        assert_eq!(seen_in(b"{}"), None);
    }

    #[test]
    fn what_changes_the_manifest_and_what_does_not() {
        let before = pod(example());
        let changed = |pointer: &str, value: Value| {
            let mut changed = example();
            *changed.pointer_mut(pointer).unwrap() = value;
            pod(changed)
        };
        let status = changed("/status", json!({"phase": "Running"}));
        let version = changed("/metadata/resourceVersion", json!("8"));
        let fields = changed("/metadata/managedFields", json!([]));
        for same in [&status, &version, &fields] {
            assert_eq!(
                (&same.manifest, &same.digest),
                (&before.manifest, &before.digest)
            );
        }
        assert_ne!(status.status, before.status);
        let mut listed = example();
        listed.as_object_mut().unwrap().remove("kind");
        assert_eq!(
            pod(listed),
            before,
            "items of lists do not say what they are"
        );
        let image = changed("/spec/containers/0/image", json!("j"));
        let label = changed("/metadata/labels/a", json!("c"));
        let mut ending = example();
        ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for other in [image, label, pod(ending)] {
            assert_ne!(other.digest, before.digest);
        }
    }

    #[test]
    fn mirrors_are_no_pods() {
        let mut mirror = example();
        mirror["metadata"]["annotations"] = json!({CONFIG_MIRROR: "static"});
        mirror["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "nu"}]);
        let Sorted::Mirror(mirror) = sort(mirror, |_| FIRST) else {
            panic!("no mirror");
        };
        let (of, owner) = (mirror.of.as_str(), mirror.owner_node_uid.as_str());
        assert_eq!((of, owner, mirror.deleting), ("static", "nu", false));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let mut odd = example();
        odd["spec"]["containers"] = json!("many");
        for (pod, name, field) in [
            (odd, "shop/web", "spec.containers"),
            (json!({"metadata": {"name": "x"}}), "/x", "metadata"),
            (json!([1]), "/", "metadata"),
        ] {
            let Sorted::Refused {
                name: told,
                finding,
                ..
            } = sort(pod, |_| FIRST)
            else {
                panic!("taken");
            };
            assert_eq!((told.as_str(), finding.field.as_str()), (name, field));
        }
    }
}
