//! What is told while all containers of a pod restart together.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};

use super::conditions::Saying;
use super::{ContainerPhase, Note, StatusFacts, containers, state};
use crate::constants::{EXIT_CODE_UNKNOWN, condition_reason as why, phase, reason};
use crate::restart::{self, Decision};

/// A container whose record has gone so that it starts anew, with all others. Who runs the pod
/// counts its restarts: the record may be gone before that is told.
pub(super) fn removed(
    old: Option<&ContainerStatus>,
    note: Option<&Note>,
    mut status: ContainerStatus,
) -> Option<ContainerStatus> {
    let note = note.filter(|note| note.reason == reason::RESTARTING_ALL_CONTAINERS)?;
    if let Some(old) = old {
        status.clone_from(old);
        if !is_told(old) && !state::is_waiting(old) {
            let end = ContainerStateTerminated {
                reason: Some(reason::RESTARTING_ALL_CONTAINERS.to_owned()),
                message: Some(
                    "The container is removed because RestartAllContainers in place".to_owned(),
                ),
                exit_code: EXIT_CODE_UNKNOWN,
                ..ContainerStateTerminated::default()
            };
            status.last_state = Some(state::terminated(end));
        }
    }
    status.state = Some(state::waiting(&note.reason, &note.message));
    let restarts = i32::try_from(note.restarts).unwrap_or(i32::MAX);
    status.restart_count = status.restart_count.max(restarts);
    Some(status)
}

fn is_told(status: &ContainerStatus) -> bool {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    waiting.and_then(|waiting| waiting.reason.as_deref()) == Some(reason::RESTARTING_ALL_CONTAINERS)
}

/// The pod's condition, for pods with a rule that restarts all containers.
pub(super) fn saying(facts: &StatusFacts<'_>, phase: &str) -> Option<Saying> {
    let has_rule = facts.manifest.all_containers().any(|(_, spec)| {
        let mut rules = spec.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    has_rule.then(|| match phase {
        phase::SUCCEEDED => Saying::no(why::POD_COMPLETED, None),
        phase::FAILED => Saying::no(why::POD_FAILED, None),
        _ if under_way(facts) => Saying {
            holds: true,
            reason: Some(why::RESTART_ALL_CONTAINERS_STARTED),
            message: Some("container exited with restart policy rule".to_owned()),
        },
        _ => Saying {
            holds: false,
            reason: None,
            message: None,
        },
    })
}

/// Whether the container that asked for it is still there: it goes last.
pub(super) fn under_way(facts: &StatusFacts<'_>) -> bool {
    let policy = facts.manifest.restart_policy();
    facts.manifest.all_containers().any(|(kind, spec)| {
        let newest = containers::named(facts, &spec.name).next();
        newest.is_some_and(|container| {
            container.phase == ContainerPhase::Exited
                && restart::after_exit(kind, spec, policy, container.exit_code)
                    == Decision::RestartAll
        })
    })
}
