//! The sync of a running pod; upstream's SyncPod.

use super::completion::InitProgress;
use super::{
    cleanup, completion, containers, init_containers, replacement, restart_all_containers, sandbox,
    volumes,
};
use crate::core::admission::{self, AdmissionDecision};
use crate::core::plan::Plan;
use crate::core::pod_spec::PodSpecView;
use crate::core::resize;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// Starts a pod and keeps it running.
pub fn sync_pod(view: &View<'_>, plan: &mut Plan) {
    let Some(spec) = view.pod.spec.clone() else {
        return;
    };
    if let Some(in_flight) = view.pod.in_flight.get(&StepKey::Checkpoint)
        && matches!(in_flight.step, Step::CheckpointTermination(_))
    {
        plan.wait_for(in_flight.step.to_string(), Some(in_flight.started_at));
        return;
    }
    if let Some(termination) = completion::check_termination(view, &spec, plan) {
        plan.start_step(view, Step::CheckpointTermination(termination));
        return;
    }
    if let Some(other) = &view.pod.blocked_by {
        plan.wait_for(format!("removal of pod {other} of the same name"), None);
        return;
    }
    if !admit(view, &spec, plan) {
        return;
    }
    if !view.pod.checkpointed || view.pod.checkpoint.allocated.is_none() {
        plan.start_step(view, Step::Checkpoint);
    }
    resize::checkpoint_allocation(view, &spec, plan);
    volumes::declare(view, &spec, plan);
    if let Some(termination) = volumes::rejection(view, &spec) {
        plan.steps.clear();
        plan.start_step(view, Step::CheckpointTermination(termination));
        return;
    }
    sync_containers(view, &spec, plan);
}

/// Whether the pod is admitted; otherwise adds what follows from the decision.
fn admit(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) -> bool {
    match admission::admit(view, spec) {
        AdmissionDecision::Admitted => {
            plan.unadmitted = false;
            return true;
        }
        AdmissionDecision::Rejected(termination) => {
            plan.start_step(view, Step::CheckpointTermination(termination));
        }
        AdmissionDecision::WaitForNode { until } => {
            plan.wait_for("Node object from the API server", None);
            plan.affinity_retry_until = until;
            if let Some(until) = until {
                plan.wake_by(until);
            }
        }
        AdmissionDecision::WaitForSources => {
            plan.wait_for(
                "all sources to sync: what other pods hold may be free",
                None,
            );
            plan.waits_for_capacity = true;
        }
        AdmissionDecision::WaitForDevices => {
            plan.start_step(view, Step::AllocateDevices);
        }
        AdmissionDecision::WaitForPreemption { victims } => {
            plan.wait_for("preempted pods to release resources", None);
            plan.waits_for_capacity = true;
            plan.victims = victims;
        }
    }
    false
}

fn sync_containers(view: &View<'_>, spec: &PodSpecView, plan: &mut Plan) {
    let Some(sandbox) = sandbox::ensure_sandbox(view, spec, plan) else {
        return;
    };
    if restart_all_containers::restart_all(view, spec, plan) {
        return;
    }
    resize::actuate(view, spec, sandbox, plan);
    let initialized = init_containers::advance(view, spec, sandbox, plan);
    containers::sync_ephemeral(view, spec, sandbox, plan);
    match initialized {
        InitProgress::Done => containers::sync_regular(view, spec, sandbox, plan),
        InitProgress::Running => replacement::report_during_init(view, spec, plan),
        InitProgress::Failed => {}
    }
    if let Some(termination) = completion::check_completion(view, spec, sandbox, initialized) {
        // A completed pod gets none of the steps planned so far.
        plan.steps
            .retain(|step| step.key() == StepKey::ApplyVolumes);
        plan.resize_progress = None;
        plan.stops.clear();
        plan.start_step(view, Step::CheckpointTermination(termination));
        return;
    }
    cleanup::remove_old_records(view, sandbox, plan);
}
