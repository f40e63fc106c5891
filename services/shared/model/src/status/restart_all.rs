//! Statuses while all containers of a pod are restarted by a `RestartAllContainers` rule.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};

use super::condition_state::PodConditionState;
use super::{ContainerPhase, StatusInputs, WaitReason, lookup, state};
use crate::constants::{EXIT_CODE_UNKNOWN, condition_reason, phase, reason};
use crate::restart::{self, RestartDecision};

/// The status of a container that was removed to be restarted with all others. The restart count comes
/// with the reason, as the container may be removed before its last status was published.
pub(super) fn removed_container(
    previous: Option<&ContainerStatus>,
    waiting: Option<&WaitReason>,
    mut status: ContainerStatus,
) -> Option<ContainerStatus> {
    let waiting = waiting.filter(|it| it.reason == reason::RESTARTING_ALL_CONTAINERS)?;
    if let Some(previous) = previous {
        status.clone_from(previous);
        if !is_reported(previous) && !state::is_waiting(previous) {
            let terminated = ContainerStateTerminated {
                reason: Some(reason::RESTARTING_ALL_CONTAINERS.to_owned()),
                message: Some(
                    "The container is removed because RestartAllContainers in place".to_owned(),
                ),
                exit_code: EXIT_CODE_UNKNOWN,
                ..ContainerStateTerminated::default()
            };
            status.last_state = Some(state::terminated_state(terminated));
        }
    }
    status.state = Some(state::waiting_state(&waiting.reason, &waiting.message));
    let restarts = i32::try_from(waiting.restarts).unwrap_or(i32::MAX);
    status.restart_count = status.restart_count.max(restarts);
    Some(status)
}

/// Whether the published status already has the reason.
fn is_reported(status: &ContainerStatus) -> bool {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    waiting.and_then(|waiting| waiting.reason.as_deref()) == Some(reason::RESTARTING_ALL_CONTAINERS)
}

/// The condition `AllContainersRestarting`, for pods with such a rule.
pub(super) fn condition(facts: &StatusInputs<'_>, phase: &str) -> Option<PodConditionState> {
    let has_rule = facts.manifest.all_containers().any(|(_, spec)| {
        let mut rules = spec.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    has_rule.then(|| match phase {
        phase::SUCCEEDED => PodConditionState::false_because(condition_reason::POD_COMPLETED, None),
        phase::FAILED => PodConditionState::false_because(condition_reason::POD_FAILED, None),
        _ if in_progress(facts) => PodConditionState {
            is_true: true,
            reason: Some(condition_reason::RESTART_ALL_CONTAINERS_STARTED),
            message: Some("container exited with restart policy rule".to_owned()),
        },
        _ => PodConditionState {
            is_true: false,
            reason: None,
            message: None,
        },
    })
}

/// Whether a restart is in progress: the container that triggered it is removed last.
pub(super) fn in_progress(facts: &StatusInputs<'_>) -> bool {
    let policy = facts.manifest.restart_policy();
    facts.manifest.all_containers().any(|(kind, spec)| {
        let newest = lookup::by_name(facts, &spec.name).next();
        newest.is_some_and(|container| {
            container.phase == ContainerPhase::Exited
                && restart::after_exit(kind, spec, policy, container.exit_code)
                    == RestartDecision::RestartAll
        })
    })
}
