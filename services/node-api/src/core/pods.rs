//! Lists of pods as API objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A `v1.PodList`.
pub(crate) fn list(items: Vec<Value>) -> Value {
    json!({
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": items,
    })
}

/// The text of a `v1.PodList` before and after its items.
pub(crate) const LIST: (&str, &str) = (
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#,
    "]}",
);

/// A pod with its status, as text: most of a large manifest is not parsed.
pub(crate) fn with_status(manifest: &[u8], status: &[u8]) -> Option<String> {
    let mut pod: BTreeMap<String, &RawValue> = serde_json::from_slice(manifest).ok()?;
    pod.remove("apiVersion");
    pod.remove("kind");
    pod.insert("status".to_owned(), serde_json::from_slice(status).ok()?);
    serde_json::to_string(&pod).ok()
}

/// A pod in the container runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningPod {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Name and image of each running container.
    pub(crate) containers: Vec<(String, String)>,
}

/// The minimal pod object of `/runningpods/`.
pub(crate) fn running(pod: &RunningPod) -> Value {
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

/// The containers of a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerNames {
    containers: Vec<ContainerName>,
    init_containers: Vec<ContainerName>,
    ephemeral_containers: Vec<ContainerName>,
}

#[derive(Debug, Deserialize)]
struct ContainerName {
    name: String,
    #[serde(default)]
    tty: bool,
}

#[derive(Deserialize)]
struct PodContainers {
    spec: ContainerNames,
}

impl ContainerNames {
    /// Those of a manifest; none if there is no manifest.
    fn parse(manifest: &[u8]) -> Self {
        let pod = serde_json::from_slice::<PodContainers>(manifest);
        pod.map(|pod| pod.spec).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<&ContainerName> {
        let mut all = self.containers.iter();
        let mut others = self
            .init_containers
            .iter()
            .chain(&self.ephemeral_containers);
        all.find(|container| container.name == name)
            .or_else(|| others.find(|container| container.name == name))
    }
}

/// Whether a container of a pod has a terminal; `None` if the pod has no such container.
pub(crate) fn has_tty(manifest: &[u8], name: &str) -> Option<bool> {
    let containers = ContainerNames::parse(manifest);
    containers.find(name).map(|container| container.tty)
}

/// Whether the spec of a pod has a container of this name.
pub(crate) fn declares_container(manifest: &[u8], name: &str) -> bool {
    ContainerNames::parse(manifest).find(name).is_some()
}

/// Whether a pod has a container of this name. A pod without a manifest is known by its status alone.
pub(crate) fn has_container(manifest: &[u8], status: &PodStatus, name: &str) -> bool {
    declares_container(manifest, name)
        || container_statuses(status).any(|status| status.name == name)
}

/// The statuses of all containers of a pod.
pub(crate) fn container_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    regular
        .chain(init)
        .chain(status.ephemeral_container_statuses.iter().flatten())
}
