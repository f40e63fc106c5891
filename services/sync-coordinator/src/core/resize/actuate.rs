//! Actuation of accepted resizes: containers that restart for it, containers that are resized while
//! they run, and the pod's cgroup.
//!
//! The actual resources of a container are in its annotation from creation, and in the checkpoint
//! after an in-place resize.

use std::collections::BTreeMap;
use std::sync::Arc;

use polylet_model::{ContainerKind, PodAllocation, ResizableResources};

use crate::core::plan::{Plan, ResizeProgress};
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::runtime_state::{ContainerRecord, ContainerState, SandboxRecord};
use crate::core::step::{ContainerResize, Step, StepKey};
use crate::core::view::View;

/// The actual resources of a container; without a record, the allocated ones.
fn actual_resources(view: &View<'_>, container: &ContainerRecord) -> ResizableResources {
    let resized = view.pod.checkpoint.actual_resources.get(&container.id);
    let recorded = resized.copied().or(container.created_resources);
    recorded.unwrap_or_else(|| {
        let allocation = allocation(view);
        allocation.map_or_else(ResizableResources::default, |allocation| {
            allocation.container_resources(&container.name)
        })
    })
}

/// The actual resources of containers that have no annotation of them, for the checkpoint.
pub(super) fn unrecorded_resources(view: &View<'_>) -> BTreeMap<String, ResizableResources> {
    let recorded = &view.pod.checkpoint.actual_resources;
    let containers = view.observed().containers.iter();
    containers
        .filter(|container| {
            container.created_resources.is_none() || recorded.contains_key(&container.id)
        })
        .map(|container| (container.id.clone(), actual_resources(view, container)))
        .collect()
}

fn allocation<'a>(view: &View<'a>) -> Option<&'a Arc<PodAllocation>> {
    view.pod.checkpoint.allocated.as_ref()
}

/// The allocated resources of a container that has others; none for kinds that are never resized.
fn target(
    view: &View<'_>,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> Option<ResizableResources> {
    let resizable = match spec.kind {
        ContainerKind::Ephemeral => false,
        ContainerKind::Init => view.node.resources.resize_gates.init_containers,
        ContainerKind::Regular | ContainerKind::Sidecar => true,
    };
    let to = allocation(view)?.container_resources(&spec.name);
    (resizable && actual_resources(view, container) != to).then_some(to)
}

/// Whether a container has the allocated resources.
pub fn is_up_to_date(
    view: &View<'_>,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> bool {
    target(view, spec, container).is_none()
}

/// Whether the resize policy of a running container requires a restart.
pub fn requires_restart(
    view: &View<'_>,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> bool {
    let Some(to) = target(view, spec, container) else {
        return false;
    };
    let from = actual_resources(view, container);
    let memory = (from.memory_limit, from.memory_request) != (to.memory_limit, to.memory_request);
    let cpu = (from.cpu_limit, from.cpu_request) != (to.cpu_limit, to.cpu_request);
    let policies = spec.spec.resize_policy.iter().flatten();
    let mut restarting = policies.filter(|policy| policy.restart_policy == "RestartContainer");
    restarting.any(|policy| match policy.resource_name.as_str() {
        "memory" => memory,
        "cpu" => cpu,
        _ => false,
    })
}

/// Resizes running containers and the pod's cgroup to the allocation.
pub fn actuate(view: &View<'_>, pod: &PodSpecView, sandbox: &SandboxRecord, plan: &mut Plan) {
    let restarting = pod.containers.iter().any(|spec| {
        let container = view.observed().newest_container_in(&spec.name, &sandbox.id);
        container
            .is_some_and(|container| container.may_run() && requires_restart(view, spec, container))
    });
    if restarting || is_allocating(view, plan) {
        return;
    }
    let changes = changes(view, pod, sandbox);
    if !changes.is_empty() || view.pod.checkpoint.cgroup_resources.is_some() {
        plan.start_step(view, Step::Resize { changes });
    }
}

fn changes(view: &View<'_>, pod: &PodSpecView, sandbox: &SandboxRecord) -> Vec<ContainerResize> {
    let one = |spec: &ContainerSpecView| {
        let container = view
            .observed()
            .newest_container_in(&spec.name, &sandbox.id)?;
        let resizable = container.state == ContainerState::Running
            && !view.pod.lifecycle.stops.contains_key(&container.id)
            && !requires_restart(view, spec, container);
        let to = target(view, spec, container).filter(|_| resizable)?;
        Some(ContainerResize {
            id: container.id.clone(),
            container: spec.name.clone(),
            from: actual_resources(view, container),
            to,
        })
    };
    pod.containers.iter().filter_map(one).collect()
}

fn is_allocating(view: &View<'_>, plan: &Plan) -> bool {
    let allocates = |step: &Step| matches!(step, Step::CheckpointAllocation { .. });
    let in_flight = view.pod.in_flight.get(&StepKey::Checkpoint);
    in_flight.is_some_and(|in_flight| allocates(&in_flight.step))
        || plan.steps.iter().any(allocates)
}

/// The resize that the creation of a container waits for, so that the container gets the latest
/// allocation and fits into the pod's cgroup. A failed resize does not delay it.
pub fn pending_resize(view: &View<'_>, plan: &Plan) -> Option<&'static str> {
    if is_allocating(view, plan) {
        return Some("checkpoint write");
    }
    let resizing = view.in_flight(&StepKey::Resize)
        || plan.steps.iter().any(|step| step.key() == StepKey::Resize);
    resizing.then_some("in-place resize of containers")
}

/// The progress of an accepted resize; `None` when it is complete.
pub fn progress(view: &View<'_>, pod: &PodSpecView) -> Option<ResizeProgress> {
    let one = |spec: &ContainerSpecView| {
        let container = view.observed().newest_container(&spec.name)?;
        let running = container.state == ContainerState::Running;
        target(view, spec, container).filter(|_| running)?;
        Some((spec.name.clone(), actual_resources(view, container)))
    };
    let actual: BTreeMap<_, _> = pod.containers.iter().filter_map(one).collect();
    let checkpoint = &view.pod.checkpoint;
    if actual.is_empty() && checkpoint.cgroup_resources.is_none() {
        return None;
    }
    let failure = view.pod.failures.get(&StepKey::Resize);
    Some(ResizeProgress {
        error: failure.map_or_else(String::new, |failure| failure.message.clone()),
        actual,
        generation: checkpoint.resize_generation,
    })
}
