//! The conditions of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;

use super::condition_state::PodConditionState;
use super::lookup::ContainerStatuses;
use super::transition_times::TransitionTimes;
use super::{StatusInputs, needs_sandbox, restart_all, state, whole_second};
use crate::constants::{condition, condition_reason, phase};
use crate::pod::is_sidecar;

/// The condition types that this module computes; all others belong to other writers and are kept.
const OWNED: [&str; 9] = [
    condition::POD_READY_TO_START_CONTAINERS,
    condition::INITIALIZED,
    condition::READY,
    condition::CONTAINERS_READY,
    condition::POD_SCHEDULED,
    condition::DISRUPTION_TARGET,
    condition::POD_RESIZE_PENDING,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::ALL_CONTAINERS_RESTARTING,
];

/// The previous conditions of other writers.
pub(super) fn unowned(facts: &StatusInputs<'_>) -> Vec<PodCondition> {
    let previous = facts
        .previous
        .and_then(|previous| previous.conditions.as_ref());
    let conditions = previous.into_iter().flatten();
    conditions
        .filter(|c| !OWNED.contains(&c.type_.as_str()))
        .cloned()
        .collect()
}

/// Computes all conditions.
pub(super) fn compute(
    facts: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    phase: &str,
) -> Vec<PodCondition> {
    let mut out = unowned(facts);
    out.extend(resize_pending(facts));
    out.extend(resize_in_progress(facts));
    if let Some(disrupted) = disruption(facts) {
        out.push(disrupted);
    }
    let times = TransitionTimes::new(facts);
    let sandbox = sandbox_ready(facts);
    let sandbox_at = times.sandbox(sandbox.is_true);
    out.push(build(
        facts,
        condition::POD_READY_TO_START_CONTAINERS,
        sandbox,
        sandbox_at,
    ));
    let initialized = initialized(facts, statuses, phase);
    let initialized_at = times.initialized(initialized.is_true);
    out.push(build(
        facts,
        condition::INITIALIZED,
        initialized,
        initialized_at,
    ));
    let containers = containers_ready(facts, statuses, phase);
    let at = times.ready(containers.is_true);
    let ready = match readiness_gates(facts, &out) {
        Some(not_ready) if containers.is_true => not_ready,
        _ => PodConditionState {
            message: containers.message.clone(),
            ..containers
        },
    };
    out.push(build(facts, condition::READY, ready, at));
    out.push(build(facts, condition::CONTAINERS_READY, containers, at));
    if let Some(state) = restart_all::condition(facts, phase) {
        let at = times.last_exit().or(times.seen);
        let type_ = condition::ALL_CONTAINERS_RESTARTING;
        out.push(PodCondition {
            // Unset by upstream for this type alone.
            observed_generation: None,
            ..build(facts, type_, state, at)
        });
    }
    out.push(build(
        facts,
        condition::POD_SCHEDULED,
        PodConditionState::TRUE,
        times.seen,
    ));
    out
}

/// Builds a condition. Its transition time is the previous one if the status is unchanged, and
/// otherwise that of the fact.
fn build(
    facts: &StatusInputs<'_>,
    type_: &str,
    state: PodConditionState,
    fact: Option<Timestamp>,
) -> PodCondition {
    let status = if state.is_true { "True" } else { "False" };
    let previous = facts.previous.and_then(|p| p.conditions.as_ref());
    let previous = previous.into_iter().flatten().find(|c| c.type_ == type_);
    let previous_time = previous.and_then(|c| c.last_transition_time.clone());
    let fact = fact.map(whole_second);
    let at = match previous {
        Some(previous) if previous.status == status => previous_time.or(fact),
        // Transition times never decrease.
        Some(_) => fact.max(previous_time),
        None => fact,
    };
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: state.reason.map(str::to_owned),
        message: state.message,
        last_transition_time: at,
        last_probe_time: None,
        observed_generation: facts.manifest.generation(),
    }
}

fn resize_pending(facts: &StatusInputs<'_>) -> Option<PodCondition> {
    let pending = facts.resize_pending?;
    let state = PodConditionState {
        message: super::non_empty(&pending.message),
        ..PodConditionState::TRUE
    };
    let type_ = condition::POD_RESIZE_PENDING;
    let condition = build(facts, type_, state, pending.since);
    Some(PodCondition {
        reason: Some(pending.reason.clone()),
        // Not `since`, which begins anew when the coordinator is restarted.
        last_probe_time: condition.last_transition_time.clone(),
        ..condition
    })
}

fn resize_in_progress(facts: &StatusInputs<'_>) -> Option<PodCondition> {
    let resizing = facts.resize_in_progress?;
    let message = super::non_empty(&resizing.error);
    let reason = message.as_ref().map(|_| condition_reason::ERROR.to_owned());
    let state = PodConditionState {
        message,
        ..PodConditionState::TRUE
    };
    let type_ = condition::POD_RESIZE_IN_PROGRESS;
    Some(PodCondition {
        reason,
        observed_generation: Some(resizing.generation).filter(|it| *it > 0),
        last_probe_time: resizing.since.map(whole_second),
        ..build(facts, type_, state, resizing.since)
    })
}

fn disruption(facts: &StatusInputs<'_>) -> Option<PodCondition> {
    let mut previous = facts
        .previous
        .and_then(|p| p.conditions.as_ref())
        .into_iter()
        .flatten();
    if let Some(previous) = previous.find(|c| c.type_ == condition::DISRUPTION_TARGET) {
        return Some(previous.clone());
    }
    let terminal = facts
        .terminal
        .filter(|terminal| terminal.disruption_target)?;
    // The message for a preempted pod differs from that of its status.
    let message = if terminal.reason == crate::constants::reason::PREEMPTING {
        Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned())
    } else {
        super::non_empty(&terminal.message)
    };
    let state = PodConditionState {
        is_true: true,
        reason: Some(condition_reason::TERMINATION_BY_KUBELET),
        message,
    };
    Some(build(
        facts,
        condition::DISRUPTION_TARGET,
        state,
        terminal.decided_at,
    ))
}

fn sandbox_ready(facts: &StatusInputs<'_>) -> PodConditionState {
    PodConditionState {
        is_true: !needs_sandbox(facts.manifest, facts.sandboxes),
        reason: None,
        message: None,
    }
}

fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn message(unknown: &[&str], known: &[&str], status: &str) -> Option<String> {
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: {}", list(unknown)));
    }
    if !known.is_empty() {
        parts.push(format!("containers with {status} status: {}", list(known)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn initialized(
    facts: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    phase: &str,
) -> PodConditionState {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for init in facts.manifest.init_containers() {
        match statuses.get(&init.name) {
            None => unknown.push(init.name.as_str()),
            Some(status) => {
                let completed = if is_sidecar(init) {
                    status.started == Some(true)
                } else {
                    status.ready
                };
                if !completed {
                    incomplete.push(init.name.as_str());
                }
            }
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return PodConditionState {
            reason: Some(condition_reason::POD_COMPLETED),
            ..PodConditionState::TRUE
        };
    }
    if statuses.regular.iter().any(|status| {
        let exited = state::termination(status).is_some() && !state::is_finalized(status);
        state::is_running(status) || exited
    }) {
        return PodConditionState::TRUE;
    }
    match message(&unknown, &incomplete, "incomplete") {
        None => PodConditionState::TRUE,
        // A pod that was initialized stays so while its containers are restarted.
        Some(_) if was_initialized(facts) => PodConditionState::TRUE,
        message => {
            PodConditionState::false_because(condition_reason::CONTAINERS_NOT_INITIALIZED, message)
        }
    }
}

fn was_initialized(facts: &StatusInputs<'_>) -> bool {
    let previous = facts
        .previous
        .and_then(|previous| previous.conditions.as_ref());
    let mut conditions = previous.into_iter().flatten();
    conditions.any(|c| c.type_ == condition::INITIALIZED && c.status == "True")
}

fn containers_ready(
    facts: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    phase: &str,
) -> PodConditionState {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = facts
        .manifest
        .init_containers()
        .iter()
        .filter(|init| is_sidecar(init));
    for container in sidecars.chain(facts.manifest.containers()) {
        match statuses.get(&container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return PodConditionState::false_because(condition_reason::POD_COMPLETED, None);
    }
    if phase == phase::FAILED {
        return PodConditionState::false_because(condition_reason::POD_FAILED, None);
    }
    match message(&unknown, &unready, "unready") {
        None => PodConditionState::TRUE,
        message => {
            PodConditionState::false_because(condition_reason::CONTAINERS_NOT_READY, message)
        }
    }
}

/// The readiness gates that are not true, if there are any.
fn readiness_gates(
    facts: &StatusInputs<'_>,
    conditions: &[PodCondition],
) -> Option<PodConditionState> {
    let mut messages = Vec::new();
    for gate in facts.manifest.spec().readiness_gates.iter().flatten() {
        let name = &gate.condition_type;
        match conditions.iter().find(|c| c.type_ == *name) {
            None => messages.push(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
            Some(c) if c.status != "True" => {
                messages.push(format!(
                    "the status of pod readiness gate {name:?} is not \"True\", but {}",
                    c.status
                ));
            }
            Some(_) => {}
        }
    }
    (!messages.is_empty()).then(|| {
        PodConditionState::false_because(
            condition_reason::READINESS_GATES_NOT_READY,
            Some(messages.join(", ")),
        )
    })
}
