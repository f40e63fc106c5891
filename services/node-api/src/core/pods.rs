//! Lists of pods as the API would give them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A v1.PodList.
pub(crate) fn list(items: Vec<Value>) -> Value {
    json!({
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": items,
    })
}

/// The text of a v1.PodList in pieces: around its items, between which there are commas.
pub(crate) const LIST: (&str, &str) = (
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#,
    "]}",
);

/// A pod with the status that the API would hold, as text: most of a large one is passed on as it is.
pub(crate) fn with_status(manifest: &[u8], status: &[u8]) -> Option<String> {
    let mut pod: BTreeMap<String, &RawValue> = serde_json::from_slice(manifest).ok()?;
    pod.remove("apiVersion");
    pod.remove("kind");
    pod.insert("status".to_owned(), serde_json::from_slice(status).ok()?);
    serde_json::to_string(&pod).ok()
}

/// A running pod as the runtime alone tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Name and image of each running container.
    pub(crate) containers: Vec<(String, String)>,
}

/// The minimal form that `/runningpods/` gives.
pub(crate) fn running(pod: &Running) -> Value {
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|(name, image)| json!({"name": name, "image": image, "resources": {}}))
        .collect();
    json!({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "spec": {"containers": containers},
        "status": {},
    })
}
