//! The end of a pod; upstream's SyncTerminatingPod and SyncTerminatedPod.

use jiff::{SignedDuration, Timestamp};

use super::kill_container::KillOptions;
use super::kill_pod::kill_pod;
use crate::core::plan::{GRACE_PERIOD_EXCEEDED, Plan, SyncPhase};
use crate::core::pod_worker::{cleanup, volumes};
use crate::core::runtime_state::ContainerRecord;
use crate::core::step::Step;
use crate::core::view::View;

/// Stops a deleted or orphaned pod and removes everything of it, unless it starts over.
pub fn remove_pod(view: &View<'_>, plan: &mut Plan) {
    plan.phase = SyncPhase::Terminating;
    plan.needs_sandbox = !has_ready_sandbox(view);
    if view.observed().observed_at.is_none() {
        // The previous instance may have created it after pleg's last inspection.
        plan.needs_refresh = true;
        plan.wait_for("runtime status of the pod", None);
        return;
    }
    if kill_pod(view, KillOptions::stop(grace_period(view)), plan) {
        let released = volumes::released(view, plan);
        if view.pod.starts_over() {
            cleanup::release(view, released, plan);
            return;
        }
        // As upstream: the last status is published while what the pod leaves is removed.
        if view.pod.spec.is_some() {
            plan.phase = SyncPhase::Terminated;
        }
        cleanup::remove_all(view, released, plan);
    }
}

/// Stops a completed, failed or evicted pod and releases its resources. Of its containers the newest of
/// each name stay until the pod is removed or their space is needed.
pub fn terminate_pod(view: &View<'_>, plan: &mut Plan) {
    plan.needs_sandbox = !has_ready_sandbox(view);
    let mut containers = view.observed().containers.iter();
    if view.pod.checkpoint.terminated && !containers.any(ContainerRecord::may_run) {
        plan.phase = SyncPhase::Terminated;
        cleanup::collect_terminated(view, plan);
        return;
    }
    plan.phase = SyncPhase::Terminating;
    if !view.pod.checkpointed {
        plan.start_step(view, Step::Checkpoint);
    }
    let grace_period = grace_period(view);
    if !kill_pod(view, KillOptions::stop(grace_period), plan) {
        check_overdue(view, grace_period, plan);
        return;
    }
    if !volumes::released(view, plan) {
        return;
    }
    if !view.pod.cgroup_removed {
        plan.start_step(view, Step::RemoveCgroup);
        return;
    }
    if view.pod.checkpointed && !view.pod.checkpoint.terminated {
        plan.start_step(view, Step::CheckpointTerminated);
    }
}

/// Reports an evicted or preempted pod that does not stop. Upstream's timeout: one and a half grace
/// periods, and at least ten seconds (minimum of the runtime request timeout).
fn check_overdue(view: &View<'_>, grace_period: u32, plan: &mut Plan) {
    let termination = view.pod.checkpoint.termination.as_ref();
    let Some(termination) = termination.filter(|ended| ended.disruption_target) else {
        return;
    };
    let timeout = grace_period.saturating_add(grace_period / 2).max(10);
    let timeout = SignedDuration::from_secs(i64::from(timeout));
    let overdue_at = termination.decided_at.checked_add(timeout);
    let overdue_at = overdue_at.unwrap_or(Timestamp::MAX);
    if view.now < overdue_at {
        plan.wake_by(overdue_at);
    } else {
        plan.wait_for(GRACE_PERIOD_EXCEEDED, Some(overdue_at));
    }
}

fn has_ready_sandbox(view: &View<'_>) -> bool {
    view.observed().sandboxes.iter().any(|s| s.ready)
}

/// The grace period of this termination in seconds.
fn grace_period(view: &View<'_>) -> u32 {
    let pod = view.pod;
    let decided = pod
        .eviction
        .as_ref()
        .or(pod.checkpoint.termination.as_ref())
        .and_then(|termination| termination.grace_period);
    let own = match &pod.spec {
        Some(spec) => spec.termination_grace_period(),
        // An orphan has only the annotations of its containers.
        None => view
            .observed()
            .containers
            .iter()
            .filter_map(|c| c.grace_period)
            .max()
            .unwrap_or(1),
    };
    decided.map_or(own, |decided| decided.min(own)).max(1)
}
