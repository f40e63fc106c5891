//! Counts of steps, under upstream's names.

pub mod images;
pub mod limits;
pub mod pods;

use std::time::{Duration, Instant};

use polylet_metrics::{DEFAULT_BUCKETS, Metric, register};
use polylet_model::Manifest;
use polylet_model::pod::ContainerKind;

use super::StepContext;
use crate::core::step::{Step, StepFailure, StepOutcome};

static STARTED_PODS: Metric = Metric::counter(
    "kubelet_started_pods_total",
    "[ALPHA] Cumulative number of pods started",
    &[],
);
static STARTED_PODS_ERRORS: Metric = Metric::counter(
    "kubelet_started_pods_errors_total",
    "[ALPHA] Cumulative number of errors when starting pods",
    &[],
);
static STARTED_CONTAINERS: Metric = Metric::counter(
    "kubelet_started_containers_total",
    "[ALPHA] Cumulative number of containers started",
    &["container_type"],
);
static STARTED_CONTAINERS_ERRORS: Metric = Metric::counter(
    "kubelet_started_containers_errors_total",
    "[ALPHA] Cumulative number of errors when starting containers",
    &["code", "container_type"],
);
static RUN_SANDBOX: Metric = Metric::histogram(
    "kubelet_run_podsandbox_duration_seconds",
    "[ALPHA] Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
    &["runtime_handler"],
    &DEFAULT_BUCKETS,
);
static RUN_SANDBOX_ERRORS: Metric = Metric::counter(
    "kubelet_run_podsandbox_errors_total",
    "[ALPHA] Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
    &["runtime_handler"],
);
static USERNS_PODS: Metric = Metric::counter(
    "kubelet_started_user_namespaced_pods_total",
    "[ALPHA] Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.",
    &[],
);
static USERNS_PODS_ERRORS: Metric = Metric::counter(
    "kubelet_started_user_namespaced_pods_errors_total",
    "[ALPHA] Cumulative number of errors when starting pods with user namespaces. This metric will only be collected on Linux.",
    &[],
);
static IMAGE_VOLUMES: Metric = Metric::counter(
    "kubelet_image_volume_requested_total",
    "[BETA] Number of requested image volumes.",
    &[],
);
static IMAGE_VOLUMES_MOUNTED: Metric = Metric::counter(
    "kubelet_image_volume_mounted_succeed_total",
    "[BETA] Number of successful image volume mounts.",
    &[],
);
static IMAGE_VOLUMES_ERRORS: Metric = Metric::counter(
    "kubelet_image_volume_mounted_errors_total",
    "[BETA] Number of failed image volume mounts.",
    &[],
);
static CGROUPS: Metric = Metric::histogram(
    "kubelet_cgroup_manager_duration_seconds",
    "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
    &["operation_type"],
    &DEFAULT_BUCKETS,
);
static SLEEPS_CUT_OFF: Metric = Metric::counter(
    "kubelet_sleep_action_terminated_early_total",
    "[ALPHA] The number of times lifecycle sleep handler got terminated before it finishes",
    &[],
);

/// Makes the counts those of this process.
pub fn register_counts() {
    register(&[
        &STARTED_PODS,
        &STARTED_PODS_ERRORS,
        &STARTED_CONTAINERS,
        &STARTED_CONTAINERS_ERRORS,
        &RUN_SANDBOX,
        &RUN_SANDBOX_ERRORS,
        &USERNS_PODS,
        &USERNS_PODS_ERRORS,
        &IMAGE_VOLUMES,
        &IMAGE_VOLUMES_MOUNTED,
        &IMAGE_VOLUMES_ERRORS,
        &CGROUPS,
        &SLEEPS_CUT_OFF,
    ]);
    images::register_counts();
    limits::register_counts();
    pods::register_counts();
}

/// Counts a call of `RunPodSandbox`.
pub fn count_sandbox(handler: &str, duration: Duration, failed: bool) {
    RUN_SANDBOX.observe(&[handler], duration.as_secs_f64());
    if failed {
        RUN_SANDBOX_ERRORS.increment(&[handler]);
    }
}

/// Counts an operation on a cgroup: `create`, `update` or `destroy`.
pub fn count_cgroup(operation: &str, since: Instant) {
    CGROUPS.observe(&[operation], since.elapsed().as_secs_f64());
}

/// Counts a sleep hook that ended before its time.
pub fn count_sleep_cut_off() {
    SLEEPS_CUT_OFF.increment(&[]);
}

/// Counts the result of a step that starts a pod or a container.
pub fn count_outcome(context: &StepContext, outcome: &StepOutcome) {
    match (&context.step, outcome) {
        (Step::CreateSandbox { .. }, StepOutcome::SandboxCreated(_)) => count_pod(context, false),
        (Step::CreateSandbox { .. }, StepOutcome::Failed(_)) => count_pod(context, true),
        (Step::CreateContainer { container, .. }, StepOutcome::ContainerCreated(_)) => {
            count_image_volumes(context, container, "");
        }
        (Step::StartContainer { container, .. }, StepOutcome::Done) => {
            STARTED_CONTAINERS.increment(&[container_type(context, container)]);
        }
        (
            Step::PullImage { container }
            | Step::PrepareDevices { container }
            | Step::CreateContainer { container, .. }
            | Step::StartContainer { container, .. },
            StepOutcome::Failed(failure),
        ) if !failure.name_reserved => {
            if matches!(context.step, Step::CreateContainer { .. }) {
                count_image_volumes(context, container, &failure.message);
            }
            count_failure(context, container, failure);
        }
        _ => {}
    }
}

fn count_pod(context: &StepContext, failed: bool) {
    STARTED_PODS.increment(&[]);
    let spec = context.manifest.as_ref().map(Manifest::spec);
    let has_users = spec.is_some_and(|spec| spec.host_users == Some(false));
    if has_users {
        USERNS_PODS.increment(&[]);
    }
    if failed {
        STARTED_PODS_ERRORS.increment(&[]);
        if has_users {
            USERNS_PODS_ERRORS.increment(&[]);
        }
    }
}

/// Counts the image volumes of a container that was created, or not, for this reason. As upstream, each
/// volume counts as mounted unless the runtime names the mount as the reason.
fn count_image_volumes(context: &StepContext, container: &str, error: &str) {
    let Some(manifest) = &context.manifest else {
        return;
    };
    let spec = manifest.container(container).map(|(_, spec)| spec);
    let mounts = spec.and_then(|spec| spec.volume_mounts.as_ref());
    for mount in mounts.into_iter().flatten() {
        let mut volumes = manifest.spec().volumes.iter().flatten();
        if volumes.any(|volume| volume.name == mount.name && volume.image.is_some()) {
            IMAGE_VOLUMES.increment(&[]);
            if error.starts_with("ImageVolumeMountFailed") {
                IMAGE_VOLUMES_ERRORS.increment(&[]);
            } else {
                IMAGE_VOLUMES_MOUNTED.increment(&[]);
            }
        }
    }
}

/// A start that failed counts as one, too.
fn count_failure(context: &StepContext, container: &str, failure: &StepFailure) {
    let kind = container_type(context, container);
    STARTED_CONTAINERS.increment(&[kind]);
    STARTED_CONTAINERS_ERRORS.increment(&[failure.reason.as_str(), kind]);
}

fn container_type(context: &StepContext, container: &str) -> &'static str {
    let manifest = context.manifest.as_ref();
    match manifest.and_then(|manifest| manifest.container(container)) {
        Some((ContainerKind::Init | ContainerKind::Sidecar, _)) => "init_container",
        Some((ContainerKind::Ephemeral, _)) => "ephemeral_container",
        Some((ContainerKind::Regular, _)) | None => "container",
    }
}
