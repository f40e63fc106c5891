//! Counts of starts, statuses and ends of pods, under upstream's names.

use std::time::Duration;

use polylet_metrics::{Metric, register};

use crate::core::pod_start::StartDuration;
use crate::core::terminations::Termination;

const START_SECONDS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0,
    300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const STATUS_SYNC_SECONDS: [f64; 11] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];

static START: Metric = Metric::histogram(
    "kubelet_pod_start_duration_seconds",
    "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
    &[],
    &START_SECONDS,
);
static START_TOTAL: Metric = Metric::histogram(
    "kubelet_pod_start_total_duration_seconds",
    "[ALPHA] Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
    &START_SECONDS,
);
static START_SLI: Metric = Metric::histogram(
    "kubelet_pod_start_sli_duration_seconds",
    "[ALPHA] Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
    &START_SECONDS,
);
static FIRST_NETWORK_POD: Metric = Metric::gauge(
    "kubelet_first_network_pod_start_sli_duration_seconds",
    "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and run init containers, measured from pod creation timestamp to when all its containers are reported as started and observed via watch",
    &[],
);
static STATUS_SYNC: Metric = Metric::histogram(
    "kubelet_pod_status_sync_duration_seconds",
    "[ALPHA] Duration in seconds to sync a pod status update. Measures time from detection of a change to pod status until the API is successfully updated for that pod, even if multiple intevening changes to pod status occur.",
    &[],
    &STATUS_SYNC_SECONDS,
);
static TERMINATED: Metric = Metric::counter(
    "kubelet_terminated_containers_total",
    "[ALPHA] Cumulative number of container terminations.",
    &["container_type", "exit_code", "reason"],
);
static MIRROR_PODS: Metric = Metric::gauge(
    "kubelet_mirror_pods",
    "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)",
    &[],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[
        &START,
        &START_TOTAL,
        &START_SLI,
        &FIRST_NETWORK_POD,
        &STATUS_SYNC,
        &TERMINATED,
        &MIRROR_PODS,
    ]);
}

/// Counts a pod's way from its first sight to a status, of which upstream counts the first and the
/// first one that is Running.
pub(crate) fn count_start(since_first_sight: Duration) {
    START.observe(&[], since_first_sight.as_secs_f64());
}

/// Counts a start that has ended.
pub(crate) fn count_ended_start(start: StartDuration) {
    START_TOTAL.observe(&[], start.total);
    if let Some(sli) = start.sli {
        START_SLI.observe(&[], sli);
        if start.first_network_pod {
            FIRST_NETWORK_POD.set(&[], sli);
        }
    }
}

/// Counts a status that the API server has, after this time.
pub(crate) fn count_status_sync(since_change: Duration) {
    // Upstream counts whole milliseconds.
    STATUS_SYNC.observe(&[], since_change.as_millis() as f64 / 1e3);
}

/// Counts containers that have ended.
pub(crate) fn count_terminations(terminations: &[Termination]) {
    for one in terminations {
        let labels = [one.container_type, &one.exit_code.to_string(), &one.reason];
        TERMINATED.increment(&labels);
    }
}

/// Sets the number of mirror pods.
pub(crate) fn set_mirror_pods(count: usize) {
    MIRROR_PODS.set(&[], count as f64);
}
