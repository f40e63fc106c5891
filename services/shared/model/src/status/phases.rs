//! The phase of a pod.

use k8s_openapi::api::core::v1::{Container as Spec, ContainerStatus};

use super::containers::{self, Lists};
use super::{ContainerPhase, Stage, StatusFacts, state};
use crate::constants::{phase, reason};
use crate::pod::ContainerKind;
use crate::restart::{self, Decision};

/// Whether a regular container of the present sandbox was ever started: from then on
/// a sidecar that restarts does not make the pod pending again.
pub(super) fn regular_container_ran(facts: &StatusFacts<'_>) -> bool {
    if facts.manifest.init_containers().is_empty() {
        return true;
    }
    let sandbox = facts.sandboxes.first();
    facts.manifest.containers().iter().any(|regular| {
        containers::named(facts, &regular.name).any(|container| {
            let present = sandbox.is_none_or(|sandbox| sandbox.id == container.sandbox_id);
            present
                && matches!(
                    container.phase,
                    ContainerPhase::Running | ContainerPhase::Exited
                )
        })
    })
}

#[derive(Default)]
struct Counts {
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

pub(super) fn phase(facts: &StatusFacts<'_>, lists: &Lists, ran_before: bool) -> String {
    let mut counts = Counts::default();
    for (kind, spec) in facts.manifest.all_containers() {
        let status = lists.get(&spec.name);
        match kind {
            ContainerKind::Init => count_init(facts, spec, status, &mut counts),
            ContainerKind::Sidecar => count_sidecar(status, &mut counts),
            ContainerKind::Regular => count_regular(facts, spec, status, &mut counts),
            ContainerKind::Ephemeral => {}
        }
    }
    decide(facts, &counts, ran_before).to_owned()
}

fn decide(facts: &StatusFacts<'_>, counts: &Counts, ran_before: bool) -> &'static str {
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
        let all_well = if counts.stopped == counts.succeeded {
            phase::SUCCEEDED
        } else {
            phase::FAILED
        };
        // Static pods keep their phase while they are stopped: they may come back.
        if facts.stage != Stage::Syncing && !facts.manifest.is_static() {
            return all_well;
        }
        return if counts.stopped == counts.final_stops {
            all_well
        } else {
            phase::RUNNING
        };
    }
    phase::PENDING
}

fn restarts(
    facts: &StatusFacts<'_>,
    kind: ContainerKind,
    spec: &Spec,
    code: i32,
    why: Option<&str>,
) -> bool {
    why == Some(reason::RESTARTING_ALL_CONTAINERS)
        || restart::after_exit(kind, spec, facts.manifest.restart_policy(), code) != Decision::Stay
}

fn count_init(
    facts: &StatusFacts<'_>,
    spec: &Spec,
    status: Option<&ContainerStatus>,
    counts: &mut Counts,
) {
    let Some(status) = status else {
        counts.pending_init = true;
        return;
    };
    let end = match state::ended(status) {
        Some(end) => Some(end),
        None if state::is_waiting(status) => state::ended_last(status),
        None => None,
    };
    match end {
        None => counts.pending_init = true,
        Some(end) if end.exit_code == 0 => {}
        Some(end) => {
            let again = restarts(
                facts,
                ContainerKind::Init,
                spec,
                end.exit_code,
                end.reason.as_deref(),
            );
            counts.failed_init |= !again;
        }
    }
}

fn count_sidecar(status: Option<&ContainerStatus>, counts: &mut Counts) {
    match status {
        None => counts.unknown += 1,
        Some(status) if state::is_running(status) => {
            counts.pending_sidecar |= status.started != Some(true);
            counts.running += 1;
        }
        Some(status) if state::ended(status).is_some() || state::ended_last(status).is_some() => {}
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
    facts: &StatusFacts<'_>,
    spec: &Spec,
    status: Option<&ContainerStatus>,
    counts: &mut Counts,
) {
    let Some(status) = status else {
        counts.unknown += 1;
        return;
    };
    if state::is_running(status) {
        counts.running += 1;
    } else if let Some(end) = state::ended(status) {
        counts.stopped += 1;
        counts.succeeded += usize::from(end.exit_code == 0);
        let again = restarts(
            facts,
            ContainerKind::Regular,
            spec,
            end.exit_code,
            end.reason.as_deref(),
        );
        counts.final_stops += usize::from(!again);
    } else if state::is_waiting(status) {
        match state::ended_last(status) {
            Some(end) => {
                counts.stopped += 1;
                let again = restarts(
                    facts,
                    ContainerKind::Regular,
                    spec,
                    end.exit_code,
                    end.reason.as_deref(),
                );
                counts.final_stops += usize::from(!again);
            }
            None => counts.waiting += 1,
        }
    } else {
        counts.unknown += 1;
    }
}
