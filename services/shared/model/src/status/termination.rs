//! The status of pods that were rejected or whose containers have stopped for good.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::lookup::{self, ContainerStatuses};
use super::{PodWorkerState, StatusInputs, is_terminal, readiness, state};
use crate::constants::{REJECTION_MESSAGE_PREFIX, condition, condition_reason, phase};
use crate::pod::{ContainerKind, is_sidecar};
use crate::qos;

/// Sets containers whose exit was not observed to terminated.
pub(super) fn finalize(facts: &StatusInputs<'_>, statuses: &mut ContainerStatuses) {
    if initialized(facts, statuses) {
        statuses.regular.iter_mut().for_each(terminate);
    }
    // Init containers after the last one that ran stay waiting; the first one does not.
    let last_run = statuses.init.iter().rposition(|status| {
        state::is_running(status)
            || state::termination(status).is_some()
            || state::last_termination(status).is_some()
    });
    statuses
        .init
        .iter_mut()
        .take(last_run.map_or(1, |at| at + 1))
        .for_each(terminate);
}

/// The status of a pod that the node did not admit: phase, reason and message, and little else.
pub(super) fn rejected(facts: &StatusInputs<'_>) -> Option<PodStatus> {
    let terminal = facts
        .terminal
        .filter(|t| t.message.starts_with(REJECTION_MESSAGE_PREFIX))?;
    if !never_ran(facts) {
        return None;
    }
    let previous = facts.previous;
    let start_time = facts.acknowledged_at.map(super::whole_second);
    let conditions = super::conditions::unowned(facts);
    Some(PodStatus {
        phase: Some(terminal.phase.clone()),
        reason: super::non_empty(&terminal.reason),
        message: super::non_empty(&terminal.message),
        conditions: Some(conditions).filter(|list| !list.is_empty()),
        qos_class: Some(qos::class(facts.manifest.spec()).as_str().to_owned()),
        start_time: start_time.or_else(|| previous.and_then(|p| p.start_time.clone())),
        observed_generation: facts.manifest.generation(),
        ..PodStatus::default()
    })
}

/// Whether no container of the pod was ever created.
fn never_ran(facts: &StatusInputs<'_>) -> bool {
    let previous = facts.previous.iter().flat_map(|previous| {
        previous
            .container_statuses
            .iter()
            .flatten()
            .chain(previous.init_container_statuses.iter().flatten())
    });
    facts.sandboxes.is_empty()
        && facts.containers.is_empty()
        && previous.into_iter().all(|s| s.container_id.is_none())
}

fn terminate(status: &mut ContainerStatus) {
    if state::termination(status).is_none() {
        status.state = Some(state::unknown_termination(state::NOT_LOCATED));
        status.ready = false;
        status.started = Some(false);
    }
}

/// Whether the pod's init containers completed before its termination was requested.
fn initialized(facts: &StatusInputs<'_>, statuses: &ContainerStatuses) -> bool {
    let has_run = |status: &ContainerStatus| {
        !state::is_waiting(status) || state::last_termination(status).is_some()
    };
    let inits = facts.manifest.init_containers();
    let Some(last) = inits.last() else {
        return true;
    };
    if statuses.regular.iter().any(has_run) {
        return true;
    }
    if is_sidecar(last) {
        let newest = lookup::by_name(facts, &last.name).next();
        return newest.is_some_and(|c| readiness::started(facts, ContainerKind::Sidecar, last, c));
    }
    let termination = statuses.get(&last.name).and_then(state::termination);
    termination.is_some_and(|end| {
        let at = end.finished_at.as_ref().map(|at| at.0);
        let in_time = termination_requested_at(facts)
            .is_none_or(|requested_at| at.is_none_or(|at| at < requested_at));
        end.exit_code == 0 && in_time
    })
}

/// When the pod's termination was requested. An init container that exits with 0 later was stopped.
fn termination_requested_at(facts: &StatusInputs<'_>) -> Option<Timestamp> {
    let decided = facts.terminal.and_then(|terminal| terminal.decided_at);
    let grace = facts.manifest.deletion_grace().unwrap_or_default();
    let deleted = facts.manifest.deletion_timestamp();
    let deleted = deleted.and_then(|at| at.checked_sub(grace).ok());
    [decided, deleted].into_iter().flatten().min()
}

/// Whether the exits of a terminated pod may not all have been observed. Not for static pods, which
/// may be started again, nor while a container is still reported as running: its exit will follow.
pub(super) fn has_unreported_exits(facts: &StatusInputs<'_>, statuses: &ContainerStatuses) -> bool {
    let any_running = |list: &[ContainerStatus]| list.iter().any(state::is_running);
    facts.worker_state == PodWorkerState::Terminated
        && !facts.manifest.is_static()
        && !any_running(&statuses.regular)
        && !any_running(&statuses.init)
}

/// The conditions of a terminated pod. As upstream, exits that were not observed are filled in after
/// the conditions were computed: these follow from `statuses` and `observed_phase`, without the filled
/// in exits, and stay as they were published then.
pub(super) fn final_conditions(
    facts: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    observed_phase: &str,
    phase: &str,
) -> Vec<PodCondition> {
    // For a deleted pod, a decision without a reason only follows from the deletion.
    let deleted = facts.manifest.deletion_timestamp().is_some();
    let decided = facts
        .terminal
        .is_some_and(|t| !t.reason.is_empty() || !deleted);
    let previous = facts.previous.filter(|_| !decided);
    let terminal = previous.filter(|p| p.phase.as_deref().is_some_and(is_terminal));
    let published = terminal.and_then(|previous| previous.conditions.as_ref());
    let not_ready = |c: &PodCondition| {
        let reason = Some(condition_reason::CONTAINERS_NOT_READY);
        c.type_ == condition::CONTAINERS_READY && c.reason.as_deref() == reason
    };
    match published {
        Some(published) if published.iter().any(not_ready) => published.clone(),
        None if !decided && observed_phase == phase::PENDING => {
            super::conditions::compute(facts, statuses, observed_phase)
        }
        _ => super::conditions::compute(facts, statuses, phase),
    }
}

/// The phase of a terminated pod. Static pods keep theirs, as they may be started again.
pub(super) fn final_phase(facts: &StatusInputs<'_>, phase: String) -> String {
    if is_terminal(&phase) || facts.manifest.is_static() {
        phase
    } else {
        phase::FAILED.to_owned()
    }
}
