//! The pod's sandbox: kept, created, or recreated.

use jiff::{SignedDuration, Timestamp};
use polylet_model::{ContainerKind, RestartPolicy};

use super::completion;
use super::kill_container::KillOptions;
use super::kill_pod::kill_pod;
use crate::core::plan::{NETWORK_NOT_READY, Plan};
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::pod_worker::{images, replacement, restart, restart_all_containers, volumes};
use crate::core::runtime_state::{ContainerState, SandboxRecord};
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// Between two events of a network that is not ready. Upstream's come with each sync, about once a second;
/// its limit leaves a burst of them, and then one in five minutes, which is what is left of these, too.
const NETWORK_REPORT_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// The sandbox for the pod's containers. Without a usable one, plans what leads to it: the old
/// sandbox stopped, the cgroup, the new sandbox, and images meanwhile.
pub fn ensure_sandbox<'a>(
    view: &View<'a>,
    spec: &PodSpecView,
    plan: &mut Plan,
) -> Option<&'a SandboxRecord> {
    if let Some(in_flight) = view.pod.in_flight.get(&StepKey::CreateSandbox) {
        plan.needs_sandbox = true;
        plan.wait_for(in_flight.step.to_string(), Some(in_flight.started_at));
        replacement::report_with_sandbox(view, spec, plan);
        images::prefetch(view, spec, plan);
        return None;
    }
    if let Some(sandbox) = usable_sandbox(view, spec) {
        stop_extra_sandboxes(view, sandbox, plan);
        return Some(sandbox);
    }
    plan.needs_sandbox = true;
    let options = KillOptions::restart(spec.termination_grace_period());
    if !should_recreate(view, spec) {
        if kill_pod(view, options, plan) {
            let termination = completion::completed_without_sandbox(view, spec);
            plan.start_step(view, Step::CheckpointTermination(termination));
        }
        return None;
    }
    replacement::report_with_sandbox(view, spec, plan);
    if !spec.host_network
        && let Err(reason) = &view.node.network
    {
        plan.wait_for(format!("{NETWORK_NOT_READY}{reason}"), None);
        report_network(view, plan);
        return None;
    }
    images::prefetch(view, spec, plan);
    let is_inspected = super::is_inspected(view, plan);
    let observed = view.observed();
    // The old sandbox stops before the new one is created.
    if !observed.is_empty() && !kill_pod(view, options, plan) {
        return None;
    }
    if !view.pod.cgroup_ready {
        plan.start_step(view, Step::EnsureCgroup);
        return None;
    }
    if !volumes::are_imminent(view, spec, plan) || !is_inspected {
        return None;
    }
    let next = observed
        .newest_sandbox()
        .map_or(0, |newest| newest.attempt.saturating_add(1));
    let attempt = next.max(view.pod.min_sandbox_attempt);
    plan.start_step(view, Step::CreateSandbox { attempt });
    None
}

/// Has the event emitted when it is due, at first or again.
fn report_network(view: &View<'_>, plan: &mut Plan) {
    let next = |last: Timestamp| last.checked_add(NETWORK_REPORT_INTERVAL).unwrap_or(last);
    let last = view.pod.network_reported_at;
    let reported_at = last.filter(|last| view.now < next(*last));
    let reported_at = reported_at.unwrap_or(view.now);
    plan.network_reported_at = Some(reported_at);
    plan.wake_by(next(reported_at));
}

/// The sandbox to keep: ready, in the right network namespace, with an address. Of several, the one
/// with containers, also those that are being created or started, else the newest.
fn usable_sandbox<'a>(view: &View<'a>, spec: &PodSpecView) -> Option<&'a SandboxRecord> {
    let observed = view.observed();
    observed
        .sandboxes
        .iter()
        .filter(|s| {
            s.ready && s.host_network == spec.host_network && (s.host_network || !s.ips.is_empty())
        })
        .filter(|s| !view.pod.stopped_sandboxes.contains(&s.id))
        .filter(|s| !view.in_flight(&StepKey::StopSandbox(s.id.clone())))
        .max_by_key(|s| (is_in_use(view, &s.id), s.attempt, s.created_at))
}

/// Whether containers run in a sandbox, or will when a step in flight has taken effect.
fn is_in_use(view: &View<'_>, sandbox: &str) -> bool {
    let mut containers = view.observed().containers.iter();
    let mut in_flight = view.pod.in_flight.values();
    in_flight.any(|in_flight| match &in_flight.step {
        Step::CreateContainer { sandbox_id, .. } => sandbox_id == sandbox,
        _ => false,
    }) || containers.any(|c| {
        let starts = || view.in_flight(&StepKey::StartContainer(c.name.clone()));
        c.sandbox_id == sandbox && (c.may_run() || (c.state == ContainerState::Created && starts()))
    })
}

/// Stops ready sandboxes other than the current one: a create call that timed out may have succeeded
/// later.
fn stop_extra_sandboxes(view: &View<'_>, current: &SandboxRecord, plan: &mut Plan) {
    for other in view
        .observed()
        .sandboxes
        .iter()
        .filter(|s| s.id != current.id && s.ready)
    {
        let id = other.id.clone();
        plan.start_step(view, Step::StopSandbox { id });
    }
}

/// Whether a lost sandbox is created again: not when no container would start in it.
fn should_recreate(view: &View<'_>, spec: &PodSpecView) -> bool {
    let observed = view.observed();
    if observed.containers.is_empty() || restart_all_containers::is_in_progress(view, spec) {
        return true;
    }
    let never_restarts = |container| !restart::after_kill(spec, container);
    let mut regular = spec.containers_of_kind(ContainerKind::Regular);
    if spec.restart_policy == RestartPolicy::Never && regular.all(never_restarts) {
        return false;
    }
    spec.containers_of_kind(ContainerKind::Regular)
        .any(|container| would_start(view, spec, container))
}

/// Whether a regular container would start in another sandbox.
fn would_start(view: &View<'_>, spec: &PodSpecView, container: &ContainerSpecView) -> bool {
    match view.observed().newest_container(&container.name) {
        // It is killed before the sandbox is created.
        Some(last) if last.may_run() => replacement::restarts_with_sandbox(view, spec, last),
        Some(last) => !replacement::has_completed_for_good(view, spec, container, last),
        None => true,
    }
}
