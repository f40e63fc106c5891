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
    let id = || state::container_id(facts, container);
    let was_running = || {
        previous.is_some_and(|it| state::is_running(it) && it.container_id.as_ref() == Some(&id()))
    };
    let is_replaced = facts.worker_state == PodWorkerState::Syncing
        && container.phase == ContainerPhase::Exited
        && waiting.is_some_and(is_replacement)
        && was_running();
    if !is_replaced {
        return Cow::Borrowed(container);
    }
    Cow::Owned(RuntimeContainer {
        phase: ContainerPhase::Running,
        ..container.clone()
    })
}

/// The successor's postStart hook is part of its start.
fn is_replacement(waiting: &WaitReason) -> bool {
    [reason::REPLACEMENT, reason::POST_START_HOOK].contains(&waiting.reason.as_str())
}
