//! The pod worker's decisions, after the kubelet's `pod_workers.go` and `computePodActions`.
//!
//! [`plan`] is the entry. A pod is synced ([`sync_pod`]), terminated with its records kept, or
//! removed ([`termination`]). Every other module decides one matter and adds to the [`Plan`].

pub mod cleanup;
pub mod completion;
pub mod containers;
pub mod images;
pub mod init_containers;
pub mod kill_container;
pub mod kill_pod;
pub mod lifecycle_hooks;
pub mod replacement;
pub mod restart;
pub mod restart_all_containers;
pub mod sandbox;
pub mod sync_pod;
pub mod termination;
pub mod volumes;

#[cfg(test)]
mod tests;

use crate::core::plan::{Plan, RUNTIME_STATUS_UNAVAILABLE, SyncPhase, WaitingFor};
use crate::core::view::View;
use crate::core::{admission, resize};

/// Decides what to do now for one pod.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = decide(view);
    if plan.phase == SyncPhase::Syncing {
        lifecycle_hooks::report_due_post_starts(view, &mut plan);
    }
    plan
}

fn decide(view: &View<'_>) -> Plan {
    let mut plan = Plan {
        phase: sync_phase(view),
        ..Plan::default()
    };
    if plan.phase == SyncPhase::CleanedUp {
        cleanup::forget_after_delay(view, &mut plan);
        return plan;
    }
    plan.unadmitted = plan.phase == SyncPhase::Syncing && !admission::was_admitted(view);
    if plan.phase == SyncPhase::Syncing
        && let Some(spec) = &view.pod.spec
    {
        plan.resize = resize::decide(view, spec);
        plan.resize_progress = resize::progress(view, spec);
    }
    if view.pod.observed.is_none() || !view.node.pleg_synced {
        plan.wait_for("runtime status", None);
        return plan;
    }
    if let Err(reason) = &view.node.runtime {
        plan.wait_for(format!("container runtime: {reason}"), None);
        return plan;
    }
    if plan.phase == SyncPhase::Syncing && view.observed().is_partial() {
        // Neither a missing address nor an exit code can be trusted. pleg retries the inspection.
        plan.waiting_for.push(WaitingFor {
            what: RUNTIME_STATUS_UNAVAILABLE.to_owned(),
            since: None,
            error: view.observed().inspect_error.clone(),
        });
        return plan;
    }
    match plan.phase {
        SyncPhase::Pending if view.pod.has_source => plan.wait_for("valid manifest", None),
        SyncPhase::Pending => plan.wait_for("all sources to sync", None),
        SyncPhase::Syncing => sync_pod::sync_pod(view, &mut plan),
        SyncPhase::Terminating | SyncPhase::Terminated
            if view.pod.removal_requested || view.pod.spec.is_none() =>
        {
            termination::remove_pod(view, &mut plan);
        }
        SyncPhase::Terminating | SyncPhase::Terminated => {
            termination::terminate_pod(view, &mut plan);
        }
        SyncPhase::CleanedUp => {}
    }
    plan
}

fn sync_phase(view: &View<'_>) -> SyncPhase {
    let pod = view.pod;
    match &pod.spec {
        _ if pod.cleaned_up_at.is_some() => SyncPhase::CleanedUp,
        _ if pod.removal_requested => SyncPhase::Terminating,
        // Its source serves an invalid manifest: the pod is no orphan, and there is nothing to sync.
        None if pod.has_source => SyncPhase::Pending,
        None if view.node.all_synced => SyncPhase::Terminating,
        None => SyncPhase::Pending,
        Some(_) if pod.checkpoint.terminated => SyncPhase::Terminated,
        Some(_) if pod.checkpoint.termination.is_some() => SyncPhase::Terminating,
        Some(_) => SyncPhase::Syncing,
    }
}

/// Whether the reported state shows all that a previous instance of this process has created; otherwise pleg is asked,
/// and nothing is created before it has answered.
fn is_inspected(view: &View<'_>, plan: &mut Plan) -> bool {
    if view.pod.awaits_inspection {
        plan.needs_refresh = true;
        plan.wait_for("runtime status of the pod", None);
    }
    !view.pod.awaits_inspection
}
