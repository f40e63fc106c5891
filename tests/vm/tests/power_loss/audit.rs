//! Comparison of the API server's state with the node's processes, mounts and directories.

use std::collections::{BTreeMap, BTreeSet};

use polylet_vm::agent::RuntimeObservation;
use serde_json::Value;

use crate::pods::KIND;

/// A pod as the API server has it.
#[derive(Debug, Clone)]
pub(crate) struct ApiPod {
    pub(crate) name: String,
    /// The UID on the node: of a mirror, that of its static pod.
    pub(crate) uid: String,
    pub(crate) phase: String,
    kind: String,
    is_ready: bool,
    is_deleting: bool,
    /// Container ids that the status calls running.
    running: BTreeSet<String>,
}

/// Pods of the node from the API server's list.
pub(crate) fn api_pods(list: &Value) -> Vec<ApiPod> {
    let items = list["items"].as_array();
    items.into_iter().flatten().map(api_pod).collect()
}

fn api_pod(pod: &Value) -> ApiPod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &pod["metadata"];
    let source = &metadata["annotations"]["kubernetes.io/config.hash"];
    let statuses = pod["status"]["containerStatuses"].as_array();
    let running = statuses.into_iter().flatten().filter_map(|status| {
        let id = status["containerID"].as_str()?.rsplit('/').next()?;
        (!status["state"]["running"].is_null()).then(|| id.to_owned())
    });
    ApiPod {
        name: text(&metadata["name"]),
        uid: text(if source.is_null() {
            &metadata["uid"]
        } else {
            source
        }),
        phase: text(&pod["status"]["phase"]),
        kind: text(&metadata["labels"][KIND]),
        is_ready: polylet_harness::cluster::is_ready(pod),
        is_deleting: !metadata["deletionTimestamp"].is_null(),
        running: running.collect(),
    }
}

impl ApiPod {
    /// Whether its containers are never restarted.
    pub(crate) fn runs_once(&self) -> bool {
        self.kind == "once"
    }

    fn unsettled(&self) -> Option<String> {
        let Self { name, phase, .. } = self;
        if self.is_deleting {
            return Some(format!("{name}: still being deleted"));
        }
        let is_settled = match self.kind.as_str() {
            "serving" | "static" => self.is_ready,
            // Between two executions no container runs, and the phase stays.
            "restarting" => phase == "Running",
            _ => true,
        };
        (!is_settled).then(|| format!("{name}: {phase}, ready: {}", self.is_ready))
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// What does not fit; empty when the node has settled and everything agrees.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Statuses that are not what the node's processes show.
    pub(crate) statuses: Vec<String>,
    /// Processes, mounts, directories and addresses without a pod that they belong to.
    pub(crate) orphans: Vec<String>,
}

impl Differences {
    pub(crate) fn is_empty(&self) -> bool {
        self.statuses.is_empty() && self.orphans.is_empty()
    }
}

/// What the API server alone shows to be unsettled.
pub(crate) fn unsettled(pods: &[ApiPod], static_pods: &[String]) -> Vec<String> {
    let mut found: Vec<String> = pods.iter().filter_map(ApiPod::unsettled).collect();
    for name in static_pods {
        let is_mirror_of = |pod: &&ApiPod| pod.name.starts_with(&format!("{name}-"));
        if !pods.iter().any(|pod| is_mirror_of(&pod) && pod.is_ready) {
            found.push(format!("static pod {name}: no ready mirror"));
        }
    }
    found
}

/// Compares pods with what the node has. Both change while they are read, so that only a difference
/// that stays is one.
pub(crate) fn compare(
    pods: &[ApiPod],
    static_pods: &[String],
    node: &RuntimeObservation,
) -> Differences {
    let by_uid: BTreeMap<&str, &ApiPod> = pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    let mut statuses = unsettled(pods, static_pods);
    statuses.extend(pods.iter().flat_map(|pod| status_differences(pod, node)));
    Differences {
        statuses,
        orphans: orphans(&by_uid, node),
    }
}

fn status_differences(pod: &ApiPod, node: &RuntimeObservation) -> Vec<String> {
    let ApiPod { name, phase, .. } = pod;
    let tasks = node.tasks.iter().filter(|task| task.pod_uid == pod.uid);
    let alive: BTreeSet<String> = tasks
        .filter(|task| task.is_alive && !task.container.is_empty())
        .map(|task| task.id.clone())
        .collect();
    let mut found = Vec::new();
    if alive != pod.running {
        let said = &pod.running;
        found.push(format!(
            "{name}: running {alive:?}, according to its status {said:?}"
        ));
    }
    if pod.runs_once() && !pod.has_ended() && alive.is_empty() {
        found.push(format!("{name}: {phase}, but nothing runs"));
    }
    found
}

fn orphans(by_uid: &BTreeMap<&str, &ApiPod>, node: &RuntimeObservation) -> Vec<String> {
    let is_live = |uid: &str| by_uid.get(uid).is_some_and(|pod| !pod.has_ended());
    let mut found = Vec::new();
    for task in node.tasks.iter().filter(|task| task.is_alive) {
        if !is_live(&task.pod_uid) {
            found.push(format!(
                "process of container {} of pod {}",
                task.id, task.pod_uid
            ));
        }
    }
    let unknown = |uid: &&String| !by_uid.contains_key(uid.as_str());
    let directories = node.pod_directories.iter().filter(unknown);
    found.extend(directories.map(|uid| format!("directory of pod {uid}")));
    for mount in &node.mounts {
        let uid = mount.split('/').nth(5).unwrap_or_default();
        if !is_live(uid) {
            found.push(format!("mount {mount}"));
        }
    }
    let sandboxes = node.tasks.iter();
    let sandboxes = sandboxes.filter(|task| task.is_alive && task.container.is_empty());
    let (networks, addresses) = (sandboxes.count(), node.addresses.len());
    if addresses > networks {
        found.push(format!(
            "{addresses} reserved addresses for {networks} sandboxes"
        ));
    }
    found
}
