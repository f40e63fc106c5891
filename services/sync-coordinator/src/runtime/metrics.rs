//! Counts of steps, under upstream's names.

use std::time::Duration;

use polylet_metrics::{DEFAULT_BUCKETS, Metric, register};
use polylet_model::pod::ContainerKind;

use super::StepContext;
use crate::core::step::{Step, StepFailure, StepOutcome};

const PULL_SECONDS: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
/// The sizes of images at which the next label begins.
const IMAGE_SIZES: [(u64, &str); 11] = [
    (0, "0-10MB"),
    (10 << 20, "10MB-100MB"),
    (100 << 20, "100MB-500MB"),
    (500 << 20, "500MB-1GB"),
    (1 << 30, "1GB-5GB"),
    (5 << 30, "5GB-10GB"),
    (10 << 30, "10GB-20GB"),
    (20 << 30, "20GB-30GB"),
    (30 << 30, "30GB-40GB"),
    (40 << 30, "40GB-60GB"),
    (60 << 30, "60GB-100GB"),
];
const LARGEST: (u64, &str) = (100 << 30, "GT100GB");

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
static IMAGE_PULL: Metric = Metric::histogram(
    "kubelet_image_pull_duration_seconds",
    "[ALPHA] Duration in seconds to pull an image.",
    &["image_size_in_bytes"],
    &PULL_SECONDS,
);

static DESIRED_PODS: Metric = Metric::gauge(
    "kubelet_desired_pods",
    "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
    &["static"],
);

/// Sets the number of pods that sources serve: by the API server, and by others.
pub fn set_desired_pods(of_api: usize, others: usize) {
    DESIRED_PODS.set(&[""], of_api as f64);
    DESIRED_PODS.set(&["true"], others as f64);
}

/// Makes the counts those of this process.
pub fn register_counts() {
    register(&[
        &STARTED_PODS,
        &STARTED_PODS_ERRORS,
        &STARTED_CONTAINERS,
        &STARTED_CONTAINERS_ERRORS,
        &RUN_SANDBOX,
        &RUN_SANDBOX_ERRORS,
        &IMAGE_PULL,
        &DESIRED_PODS,
    ]);
    set_desired_pods(0, 0);
}

/// Counts a call of `RunPodSandbox`.
pub fn count_sandbox(handler: &str, duration: Duration, failed: bool) {
    RUN_SANDBOX.observe(&[handler], duration.as_secs_f64());
    if failed {
        RUN_SANDBOX_ERRORS.increment(&[handler]);
    }
}

/// Counts a pull, with the time that it waited for others.
pub fn count_pull(bytes: u64, duration: Duration) {
    IMAGE_PULL.observe(&[size_label(bytes)], duration.as_secs_f64());
}

fn size_label(bytes: u64) -> &'static str {
    let larger = |(from, _): &&(u64, &str)| bytes >= *from;
    let sizes = IMAGE_SIZES.iter().chain([&LARGEST]);
    sizes
        .take_while(larger)
        .last()
        .map_or("", |(_, label)| label)
}

/// Counts the result of a step that starts a pod or a container.
pub fn count_outcome(context: &StepContext, outcome: &StepOutcome) {
    match (&context.step, outcome) {
        (Step::CreateSandbox { .. }, StepOutcome::SandboxCreated(_)) => STARTED_PODS.increment(&[]),
        (Step::CreateSandbox { .. }, StepOutcome::Failed(_)) => {
            STARTED_PODS.increment(&[]);
            STARTED_PODS_ERRORS.increment(&[]);
        }
        (Step::StartContainer { container, .. }, StepOutcome::Done) => {
            STARTED_CONTAINERS.increment(&[container_type(context, container)]);
        }
        (
            Step::PullImage { container }
            | Step::CreateContainer { container, .. }
            | Step::StartContainer { container, .. },
            StepOutcome::Failed(failure),
        ) if !failure.name_reserved => count_failure(context, container, failure),
        _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_upstream_labels() {
        for (bytes, label) in [
            (0, "0-10MB"),
            (10 << 20, "10MB-100MB"),
            ((1 << 30) - 1, "500MB-1GB"),
            (200 << 30, "GT100GB"),
        ] {
            assert_eq!(size_label(bytes), label);
        }
    }
}
