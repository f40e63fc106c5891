//! What is said of a pod whose containers are stopped for good.

use k8s_openapi::api::core::v1::ContainerStatus;

use super::containers::Lists;
use super::{StatusFacts, is_terminal, state};
use crate::constants::phase;

const UNSEEN: &str = "The container could not be located when the pod was terminated";

/// Gives every container an end.
pub(super) fn seal(facts: &StatusFacts<'_>, lists: &mut Lists) {
    if never_ran(facts) {
        return;
    }
    if initialized(facts, lists) {
        lists.regular.iter_mut().for_each(close);
    }
    // Init containers that never had their turn stay as they are.
    let begun = lists.init.iter().rposition(|status| {
        state::is_running(status)
            || state::ended(status).is_some()
            || state::ended_last(status).is_some()
    });
    lists
        .init
        .iter_mut()
        .take(begun.map_or(0, |at| at + 1))
        .for_each(close);
}

/// Whether no container of the pod was ever made.
pub(super) fn never_ran(facts: &StatusFacts<'_>) -> bool {
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

fn close(status: &mut ContainerStatus) {
    if state::ended(status).is_none() {
        status.state = Some(state::vanished(UNSEEN));
        status.ready = false;
        status.started = Some(false);
    }
}

fn initialized(facts: &StatusFacts<'_>, lists: &Lists) -> bool {
    let begun = |status: &ContainerStatus| {
        !state::is_waiting(status) || state::ended_last(status).is_some()
    };
    facts.manifest.init_containers().is_empty()
        || lists.regular.iter().any(begun)
        || lists
            .init
            .last()
            .and_then(state::ended)
            .is_some_and(|end| end.exit_code == 0)
}

/// Static pods have no last phase: what they were is told until they are gone.
pub(super) fn last_phase(facts: &StatusFacts<'_>, phase: String) -> String {
    if is_terminal(&phase) || facts.manifest.is_static() {
        phase
    } else {
        phase::FAILED.to_owned()
    }
}
