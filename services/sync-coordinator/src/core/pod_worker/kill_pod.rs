//! The kill of a pod's containers and sandboxes; upstream's killPod.

use polylet_model::ContainerKind;

use super::kill_container::{self, KillOptions};
use super::lifecycle_hooks;
use crate::core::plan::Plan;
use crate::core::pod_worker::replacement;
use crate::core::runtime_state::ContainerRecord;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// Stops every container, then every sandbox; true when all are stopped. All preStop hooks run at
/// once. Regular containers stop at once; sidecars after them in reverse order, as long as the grace
/// period lasts. A restart replaces the containers that a new sandbox gets.
pub fn kill_pod(view: &View<'_>, options: KillOptions, plan: &mut Plan) -> bool {
    let observed = view.observed();
    let mut stopped = true;
    for exited in observed.containers.iter().filter(|c| !c.may_run()) {
        lifecycle_hooks::abandon(view, exited, plan);
    }
    let starting = view.pod.in_flight.iter().filter(|(key, _)| {
        matches!(
            key,
            StepKey::CreateSandbox
                | StepKey::PrepareSubPaths(_)
                | StepKey::CreateContainer(_)
                | StepKey::StartContainer(_)
                | StepKey::EnsureCgroup
        )
    });
    for (_, in_flight) in starting {
        plan.wait_for(in_flight.step.to_string(), Some(in_flight.started_at));
        stopped = false;
    }
    for container in observed.containers.iter().filter(|c| c.may_run()) {
        let spec = view.pod.spec.as_deref();
        let restarts =
            spec.is_some_and(|spec| replacement::restarts_with_sandbox(view, spec, container));
        let options = KillOptions {
            after_dependents: has_running_dependents(view, container),
            restart: options.restart && restarts,
            ..options
        };
        kill_container::kill_container(view, container, options, plan);
        stopped = false;
    }
    stopped && stop_sandboxes(view, plan)
}

fn stop_sandboxes(view: &View<'_>, plan: &mut Plan) -> bool {
    let mut all_stopped = true;
    for sandbox in &view.observed().sandboxes {
        let stopped = view.pod.stopped_sandboxes.contains(&sandbox.id)
            || (view.pod.checkpoint.terminated && !sandbox.ready);
        if !stopped {
            let id = sandbox.id.clone();
            plan.start_step(view, Step::StopSandbox { id });
            all_stopped = false;
        }
    }
    all_stopped
}

/// Whether a sidecar must outlive others that still run: regular containers, and sidecars that were
/// started after it.
fn has_running_dependents(view: &View<'_>, container: &ContainerRecord) -> bool {
    let Some(spec) = view.pod.spec.as_ref() else {
        return false;
    };
    let own_index = spec
        .containers
        .iter()
        .position(|c| c.kind == ContainerKind::Sidecar && c.name == container.name);
    let Some(own_index) = own_index else {
        return false;
    };
    spec.containers.iter().enumerate().any(|(index, other)| {
        let depends = other.kind == ContainerKind::Regular
            || (other.kind == ContainerKind::Sidecar && index > own_index);
        let mut containers = view.observed().containers.iter();
        depends && containers.any(|c| c.name == other.name && c.may_run())
    })
}
