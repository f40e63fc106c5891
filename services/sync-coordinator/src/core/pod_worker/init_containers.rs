//! Init containers and sidecars, in the order of the manifest.

use polylet_model::ContainerKind;

use super::completion::InitProgress;
use super::kill_container::{self, KillOptions};
use super::lifecycle_hooks;
use crate::core::plan::Plan;
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::pod_worker::containers::{self, StartOrder};
use crate::core::pod_worker::restart;
use crate::core::runtime_state::{ContainerState, SandboxRecord};
use crate::core::view::View;

/// Exit code that upstream assumes for a container in an unknown state.
const EXIT_CODE_UNKNOWN: i32 = 255;

/// Advances the init containers. Once a regular container exists in the sandbox only sidecars are
/// synced: records of completed init containers may be gone by then.
pub fn advance(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    plan: &mut Plan,
) -> InitProgress {
    let sync_sidecar = |spec: &ContainerSpecView, plan: &mut Plan| {
        let mut order = StartOrder::default();
        containers::sync_container(view, pod, sandbox, spec, plan, &mut order);
    };
    let observed = view.observed();
    let exists = |spec: &ContainerSpecView| {
        observed
            .newest_container_in(&spec.name, &sandbox.id)
            .is_some()
    };
    let initialized = pod
        .containers_of_kind(ContainerKind::Regular)
        .any(|spec| exists(spec) || view.is_starting(&spec.name));
    if initialized {
        for sidecar in pod.containers_of_kind(ContainerKind::Sidecar) {
            if !containers::have_completed(view, pod, sandbox) {
                sync_sidecar(sidecar, plan);
            }
        }
        return InitProgress::Done;
    }
    // Everything before the newest existing one has completed or started.
    let init_containers: Vec<&ContainerSpecView> = pod.init_containers().collect();
    let current = init_containers.iter().rposition(|spec| exists(spec));
    let current = current.unwrap_or(0);
    for sidecar in init_containers
        .iter()
        .take(current)
        .filter(|spec| spec.kind == ContainerKind::Sidecar)
    {
        sync_sidecar(sidecar, plan);
    }
    for spec in init_containers.iter().skip(current) {
        let progress = if spec.kind == ContainerKind::Sidecar {
            sync_sidecar(spec, plan);
            sidecar_progress(view, sandbox, spec)
        } else {
            sync_init_container(view, pod, sandbox, spec, plan)
        };
        match progress {
            InitProgress::Done => {}
            other => return other,
        }
    }
    InitProgress::Done
}

/// Whether the containers after a sidecar may start: it runs, and its startup probe succeeded.
fn sidecar_progress(
    view: &View<'_>,
    sandbox: &SandboxRecord,
    spec: &ContainerSpecView,
) -> InitProgress {
    let container = view.observed().newest_container_in(&spec.name, &sandbox.id);
    let started = container.is_some_and(|c| {
        c.state == ContainerState::Running
            && lifecycle_hooks::is_post_start_done(view, spec, c)
            && (!spec.waits_for_startup_probe || view.pod.startup_succeeded.contains(&c.id))
    });
    if started {
        InitProgress::Done
    } else {
        InitProgress::Running
    }
}

/// Advances one init container; `Done` when the next one may start.
fn sync_init_container(
    view: &View<'_>,
    pod: &PodSpecView,
    sandbox: &SandboxRecord,
    spec: &ContainerSpecView,
    plan: &mut Plan,
) -> InitProgress {
    match view.observed().newest_container_in(&spec.name, &sandbox.id) {
        Some(last)
            if last.state == ContainerState::Exited
                && last.exit_code == 0
                && last.reason != "OOMKilled" =>
        {
            InitProgress::Done
        }
        Some(last) if last.state == ContainerState::Running => {
            plan.wait_for(format!("init container {}", spec.name), last.started_at);
            InitProgress::Running
        }
        Some(last)
            if last.state == ContainerState::Exited
                && !last.aborted
                && !restart::after_exit(pod, spec, failed_code(last.exit_code)) =>
        {
            InitProgress::Failed
        }
        Some(last)
            if last.state == ContainerState::Unknown
                && !restart::after_exit(pod, spec, EXIT_CODE_UNKNOWN) =>
        {
            let options = KillOptions::stop(pod.grace_period);
            kill_container::kill_container(view, last, options, plan);
            InitProgress::Failed
        }
        _ => {
            let mut order = StartOrder::default();
            containers::sync_container(view, pod, sandbox, spec, plan, &mut order);
            InitProgress::Running
        }
    }
}

/// The OOM killer may end one of the container's processes, after which it exits with zero.
fn failed_code(exit_code: i32) -> i32 {
    if exit_code == 0 {
        restart::EXIT_CODE_KILLED
    } else {
        exit_code
    }
}
