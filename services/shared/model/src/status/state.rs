//! The state of one container in the API's form.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Container, ContainerPhase, StatusFacts, given, second};
use crate::constants::{EXIT_CODE_UNKNOWN, reason};

const EPOCH: Time = Time(Timestamp::UNIX_EPOCH);

pub(super) fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: given(reason),
        message: given(message),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// The end of a container that nobody saw.
pub(super) fn vanished(message: &str) -> ContainerState {
    terminated(ContainerStateTerminated {
        reason: given(reason::CONTAINER_STATUS_UNKNOWN),
        message: given(message),
        exit_code: EXIT_CODE_UNKNOWN,
        ..ContainerStateTerminated::default()
    })
}

fn is_unseen(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(reason::CONTAINER_STATUS_UNKNOWN)
}

pub(super) fn terminated(terminated: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

pub(super) fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

pub(super) fn ended_last(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.last_state.as_ref()?.terminated.as_ref()
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

pub(super) fn is_waiting(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.waiting.is_some())
}

pub(super) fn full_id(facts: &StatusFacts<'_>, container: &Container) -> String {
    format!("{}://{}", facts.runtime, container.id)
}

/// What a container in the runtime says of itself, beside what was known of it.
pub(super) fn of(
    facts: &StatusFacts<'_>,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = full_id(facts, container);
    let same = old.filter(|old| old.container_id.as_ref() == Some(&id));
    let mut status = ContainerStatus {
        name: container.name.clone(),
        restart_count: i32::try_from(container.attempt).unwrap_or(i32::MAX),
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        container_id: Some(id.clone()),
        user: container
            .user
            .clone()
            .map(|linux| ContainerUser { linux: Some(linux) }),
        ..ContainerStatus::default()
    };
    if let Some(old) = old {
        status.restart_count = status.restart_count.max(old.restart_count);
        let replaced = same.is_none().then(|| ended(old)).flatten();
        // As upstream, also the end of this very container, which was told as its last while it
        // waited for its next start.
        let last = replaced.or_else(|| ended_last(old));
        status.last_state = last.cloned().map(terminated);
    }
    status.state = Some(match container.phase {
        ContainerPhase::Running => {
            let replaced = old.filter(|old| same.is_none() && ended(old).is_some());
            if let Some(old) = replaced.filter(|old| old.restart_count >= status.restart_count) {
                // The runtime's own count is behind: it has lost containers.
                let attempt = i32::try_from(container.attempt).unwrap_or(i32::MAX);
                status.restart_count = attempt.max(old.restart_count.saturating_add(1));
            }
            let running = ContainerStateRunning {
                started_at: container.started_at.map(second),
            };
            ContainerState {
                running: Some(running),
                ..ContainerState::default()
            }
        }
        ContainerPhase::Exited => terminated(ContainerStateTerminated {
            exit_code: container.exit_code,
            reason: given(&container.reason),
            message: given(&container.message),
            // As upstream: what the runtime does not know is the beginning of time.
            started_at: container.started_at.map(second).or(Some(EPOCH)),
            finished_at: container.finished_at.map(second).or(Some(EPOCH)),
            container_id: Some(id),
            signal: None,
        }),
        ContainerPhase::Unknown => unknown(&mut status, same),
        ContainerPhase::Created => waiting("", ""),
    });
    status
}

/// A container that ran and of which the runtime no longer knows has ended; of
/// one that never ran there is nothing to say.
fn unknown(status: &mut ContainerStatus, same: Option<&ContainerStatus>) -> ContainerState {
    let message = "The container could not be located when the pod was terminated";
    match same {
        Some(old) if is_running(old) => {
            status.restart_count = old.restart_count.saturating_add(1);
            vanished(message)
        }
        Some(old) if ended(old).or(ended_last(old)).is_some_and(is_unseen) => vanished(message),
        _ => waiting("", ""),
    }
}
