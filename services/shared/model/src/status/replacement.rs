//! Containers that are stopped to be replaced.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ContainerStatus;

use super::{ContainerPhase, PodWorkerState, RuntimeContainer, StatusInputs, WaitReason, state};
use crate::constants::reason;

/// A container as it counts for its status. One that is stopped to be replaced counts as running until its
/// successor does, or has failed to start: upstream's kubelet stops it, pulls the image and starts the
/// successor in one synchronization, and publishes nothing meanwhile. Without it the API server would
/// refuse the successor, where the restart policy restarts no container after such an exit.
pub(super) fn published_form<'a>(
    facts: &StatusInputs<'_>,
    previous: Option<&ContainerStatus>,
    waiting: Option<&WaitReason>,
    container: &'a RuntimeContainer,
) -> Cow<'a, RuntimeContainer> {
    let is_replaced = facts.worker_state == PodWorkerState::Syncing
        && container.phase == ContainerPhase::Exited
        && waiting.zip(previous).is_some_and(|(waiting, previous)| {
            let id = state::container_id(facts, container);
            previous.container_id == Some(id) && is_replacement(waiting, previous, container)
        });
    if !is_replaced {
        return Cow::Borrowed(container);
    }
    Cow::Owned(RuntimeContainer {
        phase: ContainerPhase::Running,
        ..container.clone()
    })
}

/// The exit may be reported before the reason why the container was stopped, but what was published as
/// waiting after a failed start does not run again.
fn is_replacement(
    waiting: &WaitReason,
    previous: &ContainerStatus,
    container: &RuntimeContainer,
) -> bool {
    match waiting.reason.as_str() {
        reason::REPLACEMENT => {
            waiting.message == container.id.as_str() && !state::is_waiting(previous)
        }
        // The successor's postStart hook is part of its start.
        reason::POST_START_HOOK => state::is_running(previous),
        _ => false,
    }
}
