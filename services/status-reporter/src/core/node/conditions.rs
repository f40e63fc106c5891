//! Conditions of the node: types, reasons and words are upstream's.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::{Facts, Pressure, Resource, SILENCE};

/// The condition that says whether pods can run here.
pub(crate) const READY: &str = "Ready";

/// Whether a node is held to be ready.
pub(crate) fn is_ready(status: Option<&NodeStatus>) -> bool {
    let all = status.and_then(|status| status.conditions.as_ref());
    let mut all = all.into_iter().flatten();
    all.any(|condition| condition.type_ == READY && condition.status == "True")
}

/// The conditions that this node tells, those that were heard, over what is held of them: a
/// transition is only a change of the status. Conditions of others are left as they are.
pub(crate) fn conditions(
    facts: &Facts,
    held: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut all = held.to_vec();
    for resource in Resource::ALL {
        if let Some(pressure) = facts.pressure.get(&resource) {
            let (kind, message) = in_words(resource, pressure);
            let told = Told {
                kind,
                status: pressure.under,
                reason: &pressure.reason,
                message: message.to_owned(),
            };
            told.put(&mut all, now);
        }
    }
    let mut problems = not_ready(facts, now);
    if !facts.csi_node {
        problems.push("CSINode is not yet initialized".to_owned());
    }
    let told = match problems.as_slice() {
        [] => Told {
            kind: READY,
            status: true,
            reason: "KubeletReady",
            message: "kubelet is posting ready status".to_owned(),
        },
        problems => Told {
            kind: READY,
            status: false,
            reason: "KubeletNotReady",
            message: joined(problems),
        },
    };
    told.put(&mut all, now);
    all
}

/// Why pods cannot run here; empty when they can.
fn not_ready(facts: &Facts, now: Timestamp) -> Vec<String> {
    let Some(runtime) = &facts.runtime else {
        return vec!["container runtime status check may not have completed yet".to_owned()];
    };
    let mut problems = Vec::new();
    if let Some(why) = &runtime.not_ready {
        problems.push(format!("container runtime is down: {why}"));
    }
    if let Some(since) = facts.silent_since
        && now.duration_since(since) >= SILENCE
    {
        let seconds = now.duration_since(since).as_secs();
        problems.push(format!(
            "PLEG is not healthy: pleg was last seen active {seconds}s ago; threshold is 3m0s"
        ));
    }
    // A runtime that is down knows nothing of its network.
    if let Some(why) = &runtime.network_not_ready
        && runtime.not_ready.as_ref() != Some(why)
    {
        problems.push(format!("container runtime network not ready: {why}"));
    }
    problems
}

fn joined(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn in_words(resource: Resource, pressure: &Pressure) -> (&'static str, &'static str) {
    match (resource, pressure.under) {
        (Resource::Memory, true) => (
            "MemoryPressure",
            "kubelet has insufficient memory available",
        ),
        (Resource::Memory, false) => ("MemoryPressure", "kubelet has sufficient memory available"),
        (Resource::Disk, true) => ("DiskPressure", "kubelet has disk pressure"),
        (Resource::Disk, false) => ("DiskPressure", "kubelet has no disk pressure"),
        (Resource::Pids, true) => ("PIDPressure", "kubelet has insufficient PID available"),
        (Resource::Pids, false) => ("PIDPressure", "kubelet has sufficient PID available"),
    }
}

struct Told<'a> {
    kind: &'a str,
    status: bool,
    reason: &'a str,
    message: String,
}

impl Told<'_> {
    fn put(self, all: &mut Vec<NodeCondition>, now: Timestamp) {
        let status = if self.status { "True" } else { "False" };
        let at = all.iter().position(|held| held.type_ == self.kind);
        let held = at.and_then(|at| all.get(at));
        let unchanged = held.filter(|held| held.status == status);
        let since = unchanged.and_then(|held| held.last_transition_time.clone());
        let condition = NodeCondition {
            type_: self.kind.to_owned(),
            status: status.to_owned(),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
        };
        match at.and_then(|at| all.get_mut(at)) {
            Some(place) => *place = condition,
            None => all.push(condition),
        }
    }
}
