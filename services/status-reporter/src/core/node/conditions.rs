//! Conditions of the node. Types, reasons and messages are upstream's.

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use polylet_schedule::go_duration;

use super::facts::{NodeFacts, PLEG_TIMEOUT, PressureCondition, PressureResource};

/// The condition type for whether pods can run on the node.
pub(crate) const READY: &str = "Ready";

/// Whether the status reports the node as ready.
pub(crate) fn is_ready(status: Option<&NodeStatus>) -> bool {
    let all = status.and_then(|status| status.conditions.as_ref());
    let mut all = all.into_iter().flatten();
    all.any(|condition| condition.type_ == READY && condition.status == "True")
}

/// The conditions with those of this node updated, as far as their facts are known. The transition
/// time changes only with the status; conditions of others stay.
pub(crate) fn conditions(
    facts: &NodeFacts,
    current: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut all = current.to_vec();
    for resource in PressureResource::ALL {
        if let Some(pressure) = facts.pressure.get(&resource) {
            let (kind, message) = pressure_condition(resource, pressure);
            let update = ConditionUpdate {
                kind,
                status: pressure.active,
                reason: &pressure.reason,
                message: message.to_owned(),
            };
            update.apply(&mut all, now);
        }
    }
    let mut errors = readiness_errors(facts, now);
    if !facts.has_csi_node {
        errors.push("CSINode is not yet initialized".to_owned());
    }
    let update = match errors.as_slice() {
        [] => ConditionUpdate {
            kind: READY,
            status: true,
            reason: "KubeletReady",
            message: "kubelet is posting ready status".to_owned(),
        },
        errors => ConditionUpdate {
            kind: READY,
            status: false,
            reason: "KubeletNotReady",
            message: joined(errors),
        },
    };
    update.apply(&mut all, now);
    all
}

/// When the conditions change next without a change of their facts: pleg has been unavailable for too long.
pub(crate) fn next_change(facts: &NodeFacts, now: Timestamp) -> Option<Timestamp> {
    let timeout = facts.pleg_stale_since?.saturating_add(PLEG_TIMEOUT).ok()?;
    // Statuses are computed as of the whole second before.
    let round = TimestampRound::new().smallest(Unit::Second);
    let timeout = timeout.round(round.mode(RoundMode::Ceil)).ok()?;
    (timeout > now).then_some(timeout)
}

/// Whether the message of a condition changes with time alone: it names the length of an outage of pleg.
pub(crate) fn message_changes(facts: &NodeFacts, now: Timestamp) -> bool {
    facts.runtime.is_some() && pleg_outage(facts, now).is_some()
}

/// How long pleg has been unavailable, once that is too long.
fn pleg_outage(facts: &NodeFacts, now: Timestamp) -> Option<SignedDuration> {
    let elapsed = now.duration_since(facts.pleg_stale_since?);
    (elapsed >= PLEG_TIMEOUT).then_some(elapsed)
}

/// Reasons error pods cannot run here; empty when they can.
fn readiness_errors(facts: &NodeFacts, now: Timestamp) -> Vec<String> {
    let Some(runtime) = &facts.runtime else {
        return vec!["container runtime status check may not have completed yet".to_owned()];
    };
    let mut errors = Vec::new();
    if let Some(error) = &runtime.not_ready {
        errors.push(format!("container runtime is down: {error}"));
    }
    if let Some(elapsed) = pleg_outage(facts, now) {
        let elapsed = go_duration::format(elapsed.unsigned_abs());
        let threshold = go_duration::format(PLEG_TIMEOUT.unsigned_abs());
        errors.push(format!(
            "PLEG is not healthy: pleg was last seen active {elapsed} ago; threshold is {threshold}"
        ));
    }
    // The network status of a runtime that is down is unknown.
    if let Some(error) = &runtime.network_not_ready
        && runtime.not_ready.as_ref() != Some(error)
    {
        errors.push(format!("container runtime network not ready: {error}"));
    }
    errors
}

fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn pressure_condition(
    resource: PressureResource,
    pressure: &PressureCondition,
) -> (&'static str, &'static str) {
    match (resource, pressure.active) {
        (PressureResource::Memory, true) => (
            "MemoryPressure",
            "kubelet has insufficient memory available",
        ),
        (PressureResource::Memory, false) => {
            ("MemoryPressure", "kubelet has sufficient memory available")
        }
        (PressureResource::Disk, true) => ("DiskPressure", "kubelet has disk pressure"),
        (PressureResource::Disk, false) => ("DiskPressure", "kubelet has no disk pressure"),
        (PressureResource::Pids, true) => ("PIDPressure", "kubelet has insufficient PID available"),
        (PressureResource::Pids, false) => ("PIDPressure", "kubelet has sufficient PID available"),
    }
}

struct ConditionUpdate<'a> {
    kind: &'a str,
    status: bool,
    reason: &'a str,
    message: String,
}

impl ConditionUpdate<'_> {
    fn apply(self, all: &mut Vec<NodeCondition>, now: Timestamp) {
        let status = if self.status { "True" } else { "False" };
        let at = all.iter().position(|current| current.type_ == self.kind);
        let current = at.and_then(|at| all.get(at));
        let unchanged = current.filter(|current| current.status == status);
        let since = unchanged.and_then(|current| current.last_transition_time.clone());
        let condition = NodeCondition {
            type_: self.kind.to_owned(),
            status: status.to_owned(),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
        };
        match at.and_then(|at| all.get_mut(at)) {
            Some(current) => *current = condition,
            None => all.push(condition),
        }
    }
}
