//! Wire messages to domain types, and back.

use jiff::Timestamp;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::eviction::v1 as wire;
use polylet_wire::pleg::v1::{Container, ContainerPhase, PodState, Sandbox};
use polylet_wire::time;

use crate::core::pods::{DeadContainer, RunningContainer, RuntimePod};
use crate::core::pressure::{ConditionState, ContainerReclaim, NodeCondition};
use crate::core::synchronize::PodEviction;

/// A pod in the runtime.
pub(crate) fn runtime_pod(state: &PodState) -> RuntimePod {
    let pod = state.r#ref.clone().unwrap_or_default();
    let (running, others): (Vec<&Container>, Vec<&Container>) = state
        .containers
        .iter()
        .partition(|container| may_run(container));
    let created = |sandbox: &Sandbox| time::from_wire_opt(sandbox.created_at.as_ref());
    RuntimePod {
        namespace: pod.namespace,
        name: pod.name,
        running: running
            .into_iter()
            .map(|container| RunningContainer {
                id: container.id.clone(),
                name: container.name.clone(),
                image: container.image.clone(),
                started_at: time::from_wire_opt(container.started_at.as_ref()),
            })
            .collect(),
        dead: others.into_iter().map(dead_container).collect(),
        sandbox_ready: state.sandboxes.iter().any(|sandbox| sandbox.ready),
        sandbox: state.sandboxes.first().map(|sandbox| sandbox.id.clone()),
        sandboxes: state.sandboxes.iter().map(created).collect(),
        created_at: state.sandboxes.first().and_then(created),
    }
}

/// Whether it runs, as far as is known: a phase that this build does not know is no end, after which
/// images are removed.
fn may_run(container: &Container) -> bool {
    matches!(
        container.phase(),
        ContainerPhase::Running | ContainerPhase::Unspecified
    )
}

fn dead_container(container: &Container) -> DeadContainer {
    let ended_at = match container.phase() {
        ContainerPhase::Exited => container.finished_at.as_ref(),
        _ => container.created_at.as_ref(),
    };
    DeadContainer {
        at: time::from_wire_opt(ended_at),
        failed: container.phase() != ContainerPhase::Exited || container.exit_code != 0,
    }
}

/// The wire's resource of a node condition.
pub(crate) fn resource(condition: NodeCondition) -> wire::Resource {
    match condition {
        NodeCondition::Memory => wire::Resource::Memory,
        NodeCondition::Disk => wire::Resource::Disk,
        NodeCondition::Pids => wire::Resource::Pids,
    }
}

/// A node condition as an item of the state stream.
pub(crate) fn condition(
    condition: NodeCondition,
    state: ConditionState,
    reclaim: Option<ContainerReclaim>,
) -> wire::Pressure {
    let reclaim = reclaim.filter(|_| condition == NodeCondition::Disk);
    wire::Pressure {
        fact: Some(wire::pressure::Fact::Condition(wire::Condition {
            resource: resource(condition).into(),
            under_pressure: state.active,
            reason: condition.reason(state.active).to_owned(),
            since: Some(time::to_wire(state.since)),
            cause: None,
            container_reclaim: reclaim.map(|reclaim| wire::ContainerReclaim {
                request: reclaim.request,
                requested_at: Some(time::to_wire(reclaim.requested_at)),
            }),
        })),
    }
}

/// An eviction on the wire.
pub(crate) fn eviction(
    eviction: &PodEviction,
    decided_at: Timestamp,
    cause: Option<Cause>,
) -> wire::Eviction {
    wire::Eviction {
        pod: Some(PodRef {
            uid: eviction.uid.clone(),
            namespace: eviction.namespace.clone(),
            name: eviction.name.clone(),
        }),
        resource: resource(NodeCondition::from(eviction.resource)).into(),
        grace_seconds: eviction.grace_seconds,
        message: eviction.message.clone(),
        decided_at: Some(time::to_wire(decided_at)),
        cause,
        disruption_target: eviction.disruption_target,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_container_in_a_phase_of_a_newer_peer_has_not_ended(
            number in prop_oneof![i32::MIN..0, 50..i32::MAX]
        ) {
            let container = |phase| Container { phase, ..Container::default() };
            let state = PodState {
                containers: vec![container(ContainerPhase::Exited.into()), container(number)],
                ..PodState::default()
            };
            let pod = runtime_pod(&state);
            prop_assert_eq!(pod.running.len(), 1);
            prop_assert_eq!(pod.dead.len(), 1);
        }
    }
}
