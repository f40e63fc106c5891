//! In-place resize: whether an admitted pod gets the resources of a changed manifest.
//!
//! The allocated resources of a pod are in its checkpoint. A manifest of the same UID with other
//! resources is a request to resize: accepted when it fits beside the other pods, deferred while it
//! does not, infeasible where this agent cannot do it. Until it is accepted, everything goes on with
//! the allocated resources, also restarted containers.
//!
//! [`actuate()`] brings accepted resources to running containers.

use std::sync::Arc;

use polylet_model::constants::condition_reason;
use polylet_model::{PodAllocation, resources};

use crate::core::admission;
use crate::core::node_resources::{NodeResources, PodRequest, SwapCapacity};
use crate::core::plan::{Plan, ResizeDecision};
use crate::core::pod_spec::PodSpecView;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

mod actuate;
#[cfg(test)]
mod actuate_tests;
#[cfg(test)]
mod tests;

pub use actuate::{actuate, is_up_to_date, pending_resize, progress, requires_restart};

/// Decides on the resources that the manifest asks for. A pod that is not admitted yet has none to
/// change.
pub fn decide(view: &View<'_>, spec: &PodSpecView) -> ResizeDecision {
    let Some(allocated) = &view.pod.checkpoint.allocated else {
        return ResizeDecision::NoChange;
    };
    // The pointer comparison is the usual case, and cheap.
    if Arc::ptr_eq(allocated, &spec.allocation) || !allocated.differs_from(&spec.allocation) {
        return ResizeDecision::NoChange;
    }
    let pending = |reason, message| ResizeDecision::Pending { reason, message };
    if let Some(message) = infeasible(&view.node.resources, spec, allocated) {
        return pending(condition_reason::INFEASIBLE, message);
    }
    match admission::check_resize(view, spec) {
        Some(rejection) => pending(condition_reason::DEFERRED, rejection.message),
        None => ResizeDecision::Accepted,
    }
}

/// Stores an accepted resize before it is actuated.
pub fn checkpoint_allocation(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) {
    match &plan.resize {
        ResizeDecision::NoChange => {}
        ResizeDecision::Accepted => accept(view, spec, plan),
        ResizeDecision::Pending { reason, .. } => {
            if *reason == condition_reason::DEFERRED {
                plan.waits_for_capacity = true;
                plan.victims = admission::resize_victims(view, spec);
                plan.wait_for("capacity for the resize", None);
            }
        }
    }
}

fn accept(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) {
    // A container in creation may get the old or the new resources: which, must be known first.
    let conflicts = |key: &StepKey| matches!(key, StepKey::CreateContainer(_) | StepKey::Resize);
    let mut in_flight = view.pod.in_flight.iter();
    if let Some((_, in_flight)) = in_flight.find(|(key, _)| conflicts(key)) {
        plan.wait_for(in_flight.step.to_string(), Some(in_flight.started_at));
        return;
    }
    let admitted = view.pod.checkpoint.request.as_ref();
    // A resize changes resource requests only; ports and priority stay as admitted.
    let request = PodRequest {
        requests: spec.request.requests.clone(),
        ..PodRequest::clone(admitted.unwrap_or(&spec.request))
    };
    plan.start_step(
        view,
        Step::CheckpointAllocation {
            allocation: Arc::clone(&spec.allocation),
            request: Arc::new(request),
            actual: actuate::unrecorded_resources(view),
            generation: spec.manifest.generation().unwrap_or_default(),
        },
    );
}

/// Why the resize is never possible, with upstream's message.
fn infeasible(
    node: &NodeResources,
    spec: &PodSpecView,
    allocated: &PodAllocation,
) -> Option<String> {
    if spec.manifest.is_static() {
        return Some("In-place resize of static-pods is not supported".to_owned());
    }
    let disabled = |gate: &str| Some(format!("{gate} is disabled"));
    if !node.resize_gates.pods {
        return disabled("InPlacePodVerticalScaling");
    }
    if !node.resize_gates.pod_level && allocated.pod != spec.allocation.pod {
        return disabled("InPlacePodLevelResourcesVerticalScaling");
    }
    if node
        .limited_swap
        .is_some_and(|swap| changes_swap_limit(swap, spec, allocated))
    {
        return Some("In-place resize of containers with swap is not supported.".to_owned());
    }
    None
}

/// Whether the swap limit of a running container would change.
fn changes_swap_limit(swap: SwapCapacity, spec: &PodSpecView, allocated: &PodAllocation) -> bool {
    let before = allocated.apply_to(&spec.manifest);
    let has_swap = |manifest: &polylet_model::Manifest, container| {
        let critical = manifest.is_critical();
        resources::limited_swap(manifest.spec(), container, critical, swap.memory, swap.swap) > 0
    };
    before.all_containers().any(|(_, old)| {
        let Some((_, new)) = spec.manifest.container(&old.name) else {
            return false;
        };
        let memory = |container| resources::request(container, "memory").unwrap_or_default();
        let restarts = old.resize_policy.iter().flatten().any(|policy| {
            policy.resource_name == "memory" && policy.restart_policy == "RestartContainer"
        });
        memory(old) != memory(new)
            && !restarts
            && (has_swap(&before, old) || has_swap(&spec.manifest, new))
    })
}
