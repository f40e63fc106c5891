//! The phase of a pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus};

use super::lookup::{self, ContainerStatuses};
use super::{ContainerPhase, PodWorkerState, StatusInputs, state};
use crate::constants::phase;
use crate::constants::reason::RESTARTING_ALL_CONTAINERS;
use crate::pod::ContainerKind;
use crate::restart::{self, RestartDecision};

/// Whether a regular container of the present sandbox has ever started. From then on, a restarting
/// sidecar does not make the pod pending again.
pub(super) fn regular_container_ran(facts: &StatusInputs<'_>) -> bool {
    if facts.manifest.init_containers().is_empty() {
        return true;
    }
    let sandbox = facts.sandboxes.first();
    facts.manifest.containers().iter().any(|regular| {
        lookup::by_name(facts, &regular.name).any(|container| {
            let is_present = sandbox.is_none_or(|sandbox| sandbox.id == container.sandbox_id);
            is_present
                && matches!(
                    container.phase,
                    ContainerPhase::Running | ContainerPhase::Exited
                )
        })
    })
}

#[derive(Default)]
struct PhaseCounts {
    failed_init: bool,
    pending_init: bool,
    pending_sidecar: bool,
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    final_stops: usize,
    succeeded: usize,
}

/// Computes the phase from the container statuses, as upstream's `getPhase`.
pub(super) fn phase(
    facts: &StatusInputs<'_>,
    statuses: &ContainerStatuses,
    ran_before: bool,
) -> String {
    let mut counts = PhaseCounts::default();
    for (kind, spec) in facts.manifest.all_containers() {
        let status = statuses.get(&spec.name);
        match kind {
            ContainerKind::Init => count_init(facts, spec, status, &mut counts),
            ContainerKind::Sidecar => count_sidecar(status, &mut counts),
            ContainerKind::Regular => count_regular(facts, spec, status, &mut counts),
            ContainerKind::Ephemeral => {}
        }
    }
    decide(facts, &counts, ran_before).to_owned()
}

fn decide(facts: &StatusInputs<'_>, counts: &PhaseCounts, ran_before: bool) -> &'static str {
    if counts.failed_init {
        return phase::FAILED;
    }
    if counts.pending_init || (counts.pending_sidecar && !ran_before) || counts.waiting > 0 {
        return phase::PENDING;
    }
    if counts.running > 0 && counts.unknown == 0 {
        return phase::RUNNING;
    }
    if counts.running == 0 && counts.stopped > 0 && counts.unknown == 0 {
        let terminal = if counts.stopped == counts.succeeded {
            phase::SUCCEEDED
        } else {
            phase::FAILED
        };
        // Static pods keep their phase while they are stopped, as they may be started again.
        if facts.worker_state != PodWorkerState::Syncing && !facts.manifest.is_static() {
            return terminal;
        }
        return if counts.stopped == counts.final_stops {
            terminal
        } else {
            phase::RUNNING
        };
    }
    phase::PENDING
}

fn restarts(
    facts: &StatusInputs<'_>,
    kind: ContainerKind,
    spec: &Container,
    exit_code: i32,
    reason: Option<&str>,
) -> bool {
    reason == Some(RESTARTING_ALL_CONTAINERS)
        || restart::after_exit(kind, spec, facts.manifest.restart_policy(), exit_code)
            != RestartDecision::NoRestart
}

fn count_init(
    facts: &StatusInputs<'_>,
    spec: &Container,
    status: Option<&ContainerStatus>,
    counts: &mut PhaseCounts,
) {
    let Some(status) = status else {
        counts.pending_init = true;
        return;
    };
    let end = match state::termination(status) {
        Some(end) => Some(end),
        None if state::is_waiting(status) => state::last_termination(status),
        None => None,
    };
    match end {
        None => counts.pending_init = true,
        Some(end) if end.exit_code == 0 => {}
        Some(end) => {
            let will_restart = restarts(
                facts,
                ContainerKind::Init,
                spec,
                end.exit_code,
                end.reason.as_deref(),
            );
            counts.failed_init |= !will_restart;
        }
    }
}

fn count_sidecar(status: Option<&ContainerStatus>, counts: &mut PhaseCounts) {
    match status {
        None => counts.unknown += 1,
        Some(status) if state::is_running(status) => {
            counts.pending_sidecar |= status.started != Some(true);
            counts.running += 1;
        }
        Some(status)
            if state::termination(status).is_some()
                || state::last_termination(status).is_some() => {}
        Some(status) if state::is_waiting(status) => {
            counts.pending_sidecar = true;
            counts.waiting += 1;
        }
        Some(_) => {
            counts.pending_sidecar = true;
            counts.unknown += 1;
        }
    }
}

fn count_regular(
    facts: &StatusInputs<'_>,
    spec: &Container,
    status: Option<&ContainerStatus>,
    counts: &mut PhaseCounts,
) {
    let Some(status) = status else {
        counts.unknown += 1;
        return;
    };
    if state::is_running(status) {
        counts.running += 1;
    } else if let Some(end) = state::termination(status) {
        counts.stopped += 1;
        counts.succeeded += usize::from(end.exit_code == 0);
        let will_restart = restarts(
            facts,
            ContainerKind::Regular,
            spec,
            end.exit_code,
            end.reason.as_deref(),
        );
        counts.final_stops += usize::from(!will_restart);
    } else if state::is_waiting(status) {
        match state::last_termination(status) {
            Some(end) => {
                counts.stopped += 1;
                let will_restart = restarts(
                    facts,
                    ContainerKind::Regular,
                    spec,
                    end.exit_code,
                    end.reason.as_deref(),
                );
                counts.final_stops += usize::from(!will_restart);
            }
            None => counts.waiting += 1,
        }
    } else {
        counts.unknown += 1;
    }
}
