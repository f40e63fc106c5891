//! What is said of a pod whose containers are stopped for good.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};

use super::containers::{self, Lists};
use super::{Stage, StatusFacts, is_terminal, state};
use crate::constants::{REFUSED, condition, condition_reason, phase};
use crate::pod::{ContainerKind, is_sidecar};
use crate::qos;

const UNSEEN: &str = "The container could not be located when the pod was terminated";

/// Gives every container an end.
pub(super) fn seal(facts: &StatusFacts<'_>, lists: &mut Lists) {
    if initialized(facts, lists) {
        lists.regular.iter_mut().for_each(close);
    }
    // Init containers that never had their turn stay as they are, but for the first.
    let begun = lists.init.iter().rposition(|status| {
        state::is_running(status)
            || state::ended(status).is_some()
            || state::ended_last(status).is_some()
    });
    lists
        .init
        .iter_mut()
        .take(begun.map_or(1, |at| at + 1))
        .for_each(close);
}

/// What is said of a pod that the node did not let in: why, and as good as nothing else.
pub(super) fn refused(facts: &StatusFacts<'_>) -> Option<PodStatus> {
    let terminal = facts.terminal.filter(|t| t.message.starts_with(REFUSED))?;
    if !never_ran(facts) {
        return None;
    }
    let previous = facts.previous;
    let start = facts.acknowledged_at.map(super::second);
    let conditions = super::conditions::of_others(facts);
    Some(PodStatus {
        phase: Some(terminal.phase.clone()),
        reason: super::given(&terminal.reason),
        message: super::given(&terminal.message),
        conditions: Some(conditions).filter(|list| !list.is_empty()),
        qos_class: Some(qos::class(facts.manifest.spec()).as_str().to_owned()),
        start_time: start.or_else(|| previous.and_then(|p| p.start_time.clone())),
        observed_generation: facts.manifest.generation(),
        ..PodStatus::default()
    })
}

/// Whether no container of the pod was ever made.
fn never_ran(facts: &StatusFacts<'_>) -> bool {
    let known = facts.previous.iter().flat_map(|previous| {
        previous
            .container_statuses
            .iter()
            .flatten()
            .chain(previous.init_container_statuses.iter().flatten())
    });
    facts.sandboxes.is_empty()
        && facts.containers.is_empty()
        && known.into_iter().all(|s| s.container_id.is_none())
}

/// Whether a container was given its end here, and said nothing of it itself.
pub(super) fn is_sealed(status: &ContainerStatus) -> bool {
    let end = state::ended(status);
    end.is_some_and(|end| end.container_id.is_none() && end.message.as_deref() == Some(UNSEEN))
}

fn close(status: &mut ContainerStatus) {
    if state::ended(status).is_none() {
        status.state = Some(state::vanished(UNSEEN));
        status.ready = false;
        status.started = Some(false);
    }
}

/// Whether the pod got as far as its main containers before it was to end.
fn initialized(facts: &StatusFacts<'_>, lists: &Lists) -> bool {
    let begun = |status: &ContainerStatus| {
        !state::is_waiting(status) || state::ended_last(status).is_some()
    };
    let inits = facts.manifest.init_containers();
    let Some(last) = inits.last() else {
        return true;
    };
    if lists.regular.iter().any(begun) {
        return true;
    }
    if is_sidecar(last) {
        let newest = containers::named(facts, &last.name).next();
        return newest.is_some_and(|c| containers::started(facts, ContainerKind::Sidecar, last, c));
    }
    let ended = lists.get(&last.name).and_then(state::ended);
    ended.is_some_and(|end| {
        let at = end.finished_at.as_ref().map(|at| at.0);
        let in_time = to_end_since(facts).is_none_or(|since| at.is_none_or(|at| at < since));
        end.exit_code == 0 && in_time
    })
}

/// Since when the pod is to end. An init container that ends well after that was told to.
fn to_end_since(facts: &StatusFacts<'_>) -> Option<Timestamp> {
    let decided = facts.terminal.and_then(|terminal| terminal.decided_at);
    let grace = facts.manifest.deletion_grace().unwrap_or_default();
    let deleted = facts.manifest.deletion_timestamp();
    let deleted = deleted.and_then(|at| at.checked_sub(grace).ok());
    [decided, deleted].into_iter().flatten().min()
}

/// Whether containers of a pod that is stopped for good said nothing of their end. Static pods may
/// come back, and what is said to run after that did end: nobody has seen it yet.
pub(super) fn leaves_gaps(facts: &StatusFacts<'_>, lists: &Lists) -> bool {
    let runs = |list: &[ContainerStatus]| list.iter().any(state::is_running);
    facts.stage == Stage::Terminated
        && !facts.manifest.is_static()
        && !runs(&lists.regular)
        && !runs(&lists.init)
}

/// The conditions of a pod that is stopped for good. Containers whose end nobody saw are given one
/// when all else has been said, so conditions do not know of it: they go by `lists` and `unsealed`,
/// the containers and the phase without that; and what was said then stands.
pub(super) fn conditions(
    facts: &StatusFacts<'_>,
    lists: &Lists,
    unsealed: &str,
    phase: &str,
) -> Vec<PodCondition> {
    // That a deleted pod has come to its end is no decision: it follows from the deletion.
    let deleted = facts.manifest.deletion_timestamp().is_some();
    let decided = facts
        .terminal
        .is_some_and(|t| !t.reason.is_empty() || !deleted);
    let before = facts.previous.filter(|_| !decided);
    let known = before.filter(|p| p.phase.as_deref().is_some_and(is_terminal));
    let said = known.and_then(|previous| previous.conditions.as_ref());
    let not_ready = |c: &PodCondition| {
        let why = Some(condition_reason::CONTAINERS_NOT_READY);
        c.type_ == condition::CONTAINERS_READY && c.reason.as_deref() == why
    };
    match said {
        Some(said) if said.iter().any(not_ready) => said.clone(),
        None if !decided && unsealed == phase::PENDING => {
            super::conditions::all(facts, lists, unsealed)
        }
        _ => super::conditions::all(facts, lists, phase),
    }
}

/// Static pods have no last phase: what they were is told until they are gone.
pub(super) fn last_phase(facts: &StatusFacts<'_>, phase: String) -> String {
    if is_terminal(&phase) || facts.manifest.is_static() {
        phase
    } else {
        phase::FAILED.to_owned()
    }
}
