//! Lists of pods as the API would give them.

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

/// A pod with the status that the API would hold.
pub(crate) fn with_status(manifest: &[u8], status: &[u8]) -> Option<Value> {
    let mut pod: Value = serde_json::from_slice(manifest).ok()?;
    let status: Value = serde_json::from_slice(status).ok()?;
    let fields = pod.as_object_mut()?;
    fields.remove("apiVersion");
    fields.remove("kind");
    fields.insert("status".to_owned(), status);
    Some(pod)
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
