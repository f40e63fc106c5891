//! Container states of the API.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{ContainerPhase, RuntimeContainer, StatusInputs, non_empty, whole_second};
use crate::constants::{EXIT_CODE_UNKNOWN, reason};

/// The kubelet's message for containers whose exit was not observed.
pub(super) const NOT_LOCATED: &str =
    "The container could not be located when the pod was terminated";

const EPOCH: Time = Time(Timestamp::UNIX_EPOCH);

pub(super) fn waiting_state(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting {
        reason: non_empty(reason),
        message: non_empty(message),
    };
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

/// The terminated state of a container whose exit was not observed.
pub(super) fn unknown_termination(message: &str) -> ContainerState {
    terminated_state(ContainerStateTerminated {
        reason: non_empty(reason::CONTAINER_STATUS_UNKNOWN),
        message: non_empty(message),
        exit_code: EXIT_CODE_UNKNOWN,
        ..ContainerStateTerminated::default()
    })
}

fn is_unknown_termination(end: &ContainerStateTerminated) -> bool {
    end.reason.as_deref() == Some(reason::CONTAINER_STATUS_UNKNOWN)
}

pub(super) fn terminated_state(terminated: ContainerStateTerminated) -> ContainerState {
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

pub(super) fn termination(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

pub(super) fn last_termination(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
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

pub(super) fn container_id(facts: &StatusInputs<'_>, container: &RuntimeContainer) -> String {
    format!("{}://{}", facts.runtime_name, container.id)
}

/// The status of a container in the runtime, with the restart count and last state of the previous
/// status.
pub(super) fn from_runtime(
    facts: &StatusInputs<'_>,
    container: &RuntimeContainer,
    previous: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = container_id(facts, container);
    let same = previous.filter(|it| it.container_id.as_ref() == Some(&id));
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
    if let Some(previous) = previous {
        status.restart_count = status.restart_count.max(previous.restart_count);
        let replaced = same.is_none().then(|| termination(previous)).flatten();
        // As upstream, this may be the exit of the same container, published as its last state while
        // it was waiting for its next start.
        let last = replaced.or_else(|| last_termination(previous));
        status.last_state = last.cloned().map(terminated_state);
    }
    status.state = Some(match container.phase {
        ContainerPhase::Running => {
            let replaced = previous.filter(|it| same.is_none() && termination(it).is_some());
            if let Some(replaced) = replaced.filter(|it| it.restart_count >= status.restart_count) {
                // The runtime has lost containers, and its count is too low.
                let attempt = i32::try_from(container.attempt).unwrap_or(i32::MAX);
                status.restart_count = attempt.max(replaced.restart_count.saturating_add(1));
            }
            let running = ContainerStateRunning {
                started_at: container.started_at.map(whole_second),
            };
            ContainerState {
                running: Some(running),
                ..ContainerState::default()
            }
        }
        ContainerPhase::Exited => terminated_state(ContainerStateTerminated {
            exit_code: container.exit_code,
            reason: non_empty(&container.reason),
            message: non_empty(&container.message),
            // As upstream, unknown times are the epoch.
            started_at: container.started_at.map(whole_second).or(Some(EPOCH)),
            finished_at: container.finished_at.map(whole_second).or(Some(EPOCH)),
            container_id: Some(id),
            signal: None,
        }),
        ContainerPhase::Unknown => unknown(&mut status, same),
        ContainerPhase::Created => waiting_state("", ""),
    });
    status
}

/// The state of a container that is unknown to the runtime: terminated if it ran, else waiting.
fn unknown(status: &mut ContainerStatus, same: Option<&ContainerStatus>) -> ContainerState {
    let message = "The container could not be located when the pod was terminated";
    match same {
        Some(previous) if is_running(previous) => {
            status.restart_count = previous.restart_count.saturating_add(1);
            unknown_termination(message)
        }
        Some(previous)
            if termination(previous)
                .or(last_termination(previous))
                .is_some_and(is_unknown_termination) =>
        {
            unknown_termination(message)
        }
        _ => waiting_state("", ""),
    }
}

/// Whether the termination was filled in because the exit was not observed.
pub(super) fn is_finalized(status: &ContainerStatus) -> bool {
    let end = termination(status);
    end.is_some_and(|end| end.container_id.is_none() && end.message.as_deref() == Some(NOT_LOCATED))
}
