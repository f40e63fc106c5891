//! Containers: started, kept running, replaced, restarted by policy.

use polylet_model::ContainerKind;
use polylet_model::constants::reason;

use super::cleanup;
use super::completion::{self, InitProgress};
use super::kill_container::{self, KillOptions};
use super::lifecycle_hooks::{self, PostStartProgress};
use crate::core::plan::Plan;
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::pod_worker::images::{self, ImageReadiness};
use crate::core::pod_worker::{replacement, restart, volumes};
use crate::core::resize;
use crate::core::runtime_state::{ContainerRecord, ContainerState, SandboxRecord};
use crate::core::step::{Step, StepKey};
use crate::core::view::{ProbeFailure, View};

/// The order of starts among containers that may be created at the same time.
#[derive(Debug, Default)]
pub struct StartOrder {
    /// An earlier container has not started yet: later ones are created and not started.
    pub earlier_pending: bool,
}

/// Syncs the regular containers.
pub fn sync_regular(view: &View<'_>, pod: &PodSpecView, sandbox: &SandboxRecord, plan: &mut Plan) {
    let mut order = StartOrder::default();
    for spec in pod.containers_of_kind(ContainerKind::Regular) {
        sync_container(view, pod, sandbox, spec, plan, &mut order);
    }
}

/// Starts ephemeral containers, each once, as soon as there is a sandbox.
pub fn sync_ephemeral(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    plan: &mut Plan,
) {
    for spec in pod.containers_of_kind(ContainerKind::Ephemeral) {
        let container = view.observed().newest_container(&spec.name);
        if container.is_none_or(|c| c.state == ContainerState::Created) {
            let mut order = StartOrder::default();
            start(view, pod, sandbox, spec, plan, &mut order);
        }
    }
}

/// Syncs one container: runs its hook, kills it or starts it.
pub fn sync_container(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    spec: &ContainerSpecView,
    plan: &mut Plan,
    order: &mut StartOrder,
) {
    let newest = view.observed().newest_container_in(&spec.name, &sandbox.id);
    match newest {
        Some(running) if running.state == ContainerState::Running => {
            sync_running(view, pod, spec, running, plan, order);
        }
        Some(unknown) if unknown.state == ContainerState::Unknown => {
            let options = KillOptions::restart(pod.grace_period);
            kill_container::kill_container(view, unknown, options, plan);
        }
        _ => {
            if let Some(exited) = newest {
                lifecycle_hooks::abandon(view, exited, plan);
            }
            // A container that completed in an older sandbox does not run again.
            let last = newest.or_else(|| {
                let older = view.observed().newest_container(&spec.name);
                older.filter(|o| replacement::has_completed_for_good(view, pod, spec, o))
            });
            if replacement::should_restart(view, pod, spec, last) {
                start(view, pod, sandbox, spec, plan, order);
                if spec.post_start.is_some() {
                    // Published with the start, so that the container is not Ready before the hook.
                    plan.set_waiting(&spec.name, reason::POST_START_HOOK, "", None);
                }
            }
        }
    }
}

fn sync_running(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    running: &ContainerRecord,
    plan: &mut Plan,
    order: &mut StartOrder,
) {
    match lifecycle_hooks::run_post_start(view, spec, running, plan) {
        // As upstream: the container is not killed before its hook has ended.
        PostStartProgress::Running => {
            plan.set_waiting(&spec.name, reason::POST_START_HOOK, "", None);
            order.earlier_pending = true;
        }
        PostStartProgress::Failed => {
            let options = KillOptions::stop(pod.grace_period);
            kill_container::kill_container(view, running, options, plan);
            order.earlier_pending = true;
        }
        PostStartProgress::Done => {
            if let Some(options) = kill_options(view, pod, spec, running) {
                kill_container::kill_container(view, running, options, plan);
                if options.restart {
                    replacement::report_stop(spec, running, plan);
                }
            }
            replacement::report_replaced(view, spec, plan);
        }
    }
}

fn spec_changed(container: &ContainerRecord, spec: &ContainerSpecView) -> bool {
    !container.hash.is_empty() && container.hash != spec.hash
}

/// Whether a running container must be killed, and how. A stop in progress is completed: the preStop
/// hook may already have shut the container's service down. A changed spec and a resize restart it whatever
/// its policy.
fn kill_options(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> Option<KillOptions> {
    if let Some(stop) = view.pod.lifecycle.stops.get(&container.id) {
        return Some(KillOptions {
            restart: stop.restart,
            ..KillOptions::stop(stop.grace_period)
        });
    }
    if spec.kind != ContainerKind::Ephemeral && spec_changed(container, spec) {
        return Some(KillOptions::restart(pod.grace_period));
    }
    if resize::requires_restart(view, spec, container) {
        return Some(KillOptions::restart(pod.grace_period));
    }
    let ProbeFailure { startup, .. } = view.pod.probe_failures.get(&container.id)?;
    let grace_period = if *startup {
        spec.startup_grace_period
    } else {
        spec.liveness_grace_period
    };
    Some(KillOptions {
        restart: restart::after_kill(pod, spec),
        ..KillOptions::stop(grace_period.unwrap_or(pod.grace_period))
    })
}

/// Whether no regular container runs or will run again.
pub fn have_completed(view: &View<'_>, pod: &PodSpecView, sandbox: &SandboxRecord) -> bool {
    completion::check_completion(view, pod, sandbox, InitProgress::Done).is_some()
}

/// Takes the next step towards a container's start.
fn start(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    spec: &ContainerSpecView,
    plan: &mut Plan,
    order: &mut StartOrder,
) {
    create_or_start(view, pod, sandbox, spec, plan, order);
    restart::report_backoff_until_created(view, pod, spec, plan);
    replacement::report_replaced(view, spec, plan);
}

fn create_or_start(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    spec: &ContainerSpecView,
    plan: &mut Plan,
    order: &mut StartOrder,
) {
    lifecycle_hooks::report_post_start_failure(view, spec, plan);
    if view.is_starting(&spec.name) {
        plan.wait_for(format!("container {}", spec.name), None);
        order.earlier_pending = true;
        return;
    }
    let newest = view.observed().newest_container_in(&spec.name, &sandbox.id);
    if let Some(aborted) = newest.filter(|c| c.aborted) {
        // It is created again under the same restart count, which its record still holds.
        cleanup::remove_container(view, aborted, plan);
        order.earlier_pending = true;
        return;
    }
    let created = newest.filter(|c| c.state == ContainerState::Created && !spec_changed(c, spec));
    let next = restart::next_attempt(view, spec);
    if created.is_none() && restart::wait_for_backoff(view, pod, spec, &next, plan) {
        return;
    }
    if is_backing_off(view, spec, plan) {
        return;
    }
    if let Some(created) = created {
        start_created(view, spec, created, plan, order);
        return;
    }
    let is_inspected = super::is_inspected(view, plan);
    let image_ref = match images::ensure(view, spec, plan) {
        ImageReadiness::Present(image_ref) => image_ref,
        ImageReadiness::Pulling => {
            order.earlier_pending = true;
            return;
        }
        ImageReadiness::BackingOff => return,
    };
    order.earlier_pending = true;
    if !volumes::are_mounted(view, pod, plan) || !is_inspected {
        return;
    }
    if !view.pod.cgroup_ready {
        plan.start_step(view, Step::EnsureCgroup);
        return;
    }
    if let Some(what) = resize::pending_resize(view, plan) {
        plan.wait_for(what, None);
        return;
    }
    if !is_prepared(view, spec, sandbox, plan) {
        return;
    }
    plan.start_step(
        view,
        Step::CreateContainer {
            container: spec.name.clone(),
            attempt: next.attempt,
            backoff_step: next.backoff_step,
            sandbox_id: sandbox.id.clone(),
            image_ref,
        },
    );
}

/// Whether the devices and subPaths of the next container are prepared. The devices come first: paths may
/// contain the variables that they bring.
fn is_prepared(
    view: &View<'_>,
    spec: &ContainerSpecView,
    sandbox: &SandboxRecord,
    plan: &mut Plan,
) -> bool {
    let container = spec.name.clone();
    if !spec.device_limits.is_empty() && !view.pod.prepared_devices.contains_key(&container) {
        plan.start_step(view, Step::PrepareDevices { container });
        return false;
    }
    if spec.has_sub_paths && !view.pod.sub_paths.contains_key(&container) {
        let sandbox_id = sandbox.id.clone();
        let prepare = Step::PrepareSubPaths {
            container,
            sandbox_id,
        };
        plan.start_step(view, prepare);
        return false;
    }
    true
}

fn start_created(
    view: &View<'_>,
    spec: &ContainerSpecView,
    created: &ContainerRecord,
    plan: &mut Plan,
    order: &mut StartOrder,
) {
    if order.earlier_pending {
        let what = format!("earlier containers to start before container {}", spec.name);
        plan.wait_for(what, None);
        return;
    }
    if spec.post_start.is_some() {
        // The hook runs again: its last failure is outdated.
        plan.waiting_containers
            .retain(|waiting| waiting.container != spec.name);
    }
    plan.start_step(
        view,
        Step::StartContainer {
            container: spec.name.clone(),
            attempt: created.attempt,
            id: created.id.clone(),
        },
    );
    order.earlier_pending = true;
}

/// Whether the last attempt to create or start the container failed a moment ago, which is then its
/// waiting reason.
fn is_backing_off(view: &View<'_>, spec: &ContainerSpecView, plan: &mut Plan) -> bool {
    for key in [
        StepKey::PrepareDevices(spec.name.clone()),
        StepKey::PrepareSubPaths(spec.name.clone()),
        StepKey::CreateContainer(spec.name.clone()),
        StepKey::StartContainer(spec.name.clone()),
    ] {
        if let Some(failure) = view.backing_off(&key) {
            plan.set_waiting(
                &spec.name,
                &failure.reason,
                failure.message.clone(),
                Some(failure.retry_at),
            );
            plan.wake_by(failure.retry_at);
            return true;
        }
    }
    false
}
