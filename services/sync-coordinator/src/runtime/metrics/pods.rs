//! Counts of pods and of their syncs, under upstream's names.

use polylet_metrics::{DEFAULT_BUCKETS, Metric, register};

use crate::core::pod_counts::PodTotals;
use crate::core::pod_syncs::SyncChange;

static WORKER: Metric = Metric::histogram(
    "kubelet_pod_worker_duration_seconds",
    "[ALPHA] Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
    &["operation_type"],
    &DEFAULT_BUCKETS,
);
static WORKER_START: Metric = Metric::histogram(
    "kubelet_pod_worker_start_duration_seconds",
    "[ALPHA] Duration in seconds from kubelet seeing a pod to starting a worker.",
    &[],
    &DEFAULT_BUCKETS,
);
static CONTAINERS_PER_POD: Metric = Metric::histogram(
    "kubelet_containers_per_pod_count",
    "[ALPHA] The number of containers per pod.",
    &[],
    &[1.0, 2.0, 4.0, 8.0, 16.0],
);
static DESIRED: Metric = Metric::gauge(
    "kubelet_desired_pods",
    "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
    &["static"],
);
static ACTIVE: Metric = Metric::gauge(
    "kubelet_active_pods",
    "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.",
    &["static"],
);
static WORKING: Metric = Metric::gauge(
    "kubelet_working_pods",
    "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
    &["lifecycle", "config", "static"],
);
static ORPHANED: Metric = Metric::counter(
    "kubelet_orphaned_runtime_pods_total",
    "[ALPHA] Number of pods that have been detected in the container runtime without being already known to the pod worker. This typically indicates the kubelet was restarted while a pod was force deleted in the API or in the local configuration, which is unusual.",
    &[],
);
static RESTARTED: Metric = Metric::counter(
    "kubelet_restarted_pods_total",
    "[ALPHA] Number of pods that have been restarted because they were deleted and recreated with the same UID while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
    &["static"],
);
static EPHEMERAL: Metric = Metric::gauge(
    "kubelet_managed_ephemeral_containers",
    "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.",
    &[],
);
static PENDING_RESIZES: Metric = Metric::gauge(
    "kubelet_pod_pending_resizes",
    "[ALPHA] Number of pending resizes for pods.",
    &["reason"],
);
static RESIZES: Metric = Metric::gauge(
    "kubelet_pod_in_progress_resizes",
    "[ALPHA] Number of in-progress resizes for pods.",
    &[],
);

/// Makes the counts those of this process.
pub(super) fn register_counts() {
    register(&[
        &WORKER,
        &WORKER_START,
        &CONTAINERS_PER_POD,
        &DESIRED,
        &ACTIVE,
        &WORKING,
        &ORPHANED,
        &RESTARTED,
        &EPHEMERAL,
        &PENDING_RESIZES,
        &RESIZES,
    ]);
    set_desired(0, 0);
    for is_static in ["", "true"] {
        RESTARTED.add(&[is_static], 0.0);
    }
}

/// Sets the number of pods that sources serve: by the API server, and by others.
pub fn set_desired(of_api: usize, others: usize) {
    DESIRED.set(&[""], of_api as f64);
    DESIRED.set(&["true"], others as f64);
}

/// Sets the numbers of pods by their states.
pub(crate) fn set_totals(totals: &PodTotals) {
    let [of_api, others] = totals.active;
    ACTIVE.set(&[""], of_api as f64);
    ACTIVE.set(&["true"], others as f64);
    let working = totals.working.iter();
    WORKING.replace(working.map(|(labels, count)| (labels.to_vec(), *count as f64)));
    EPHEMERAL.set(&[], totals.ephemeral_containers as f64);
    // In lower case, as upstream has it in its label.
    let pending: Vec<_> = totals.pending_resizes.iter().collect();
    let pending: Vec<_> = pending
        .into_iter()
        .map(|(reason, count)| (reason.to_lowercase(), *count as f64))
        .collect();
    PENDING_RESIZES.replace(
        pending
            .iter()
            .map(|(reason, n)| (vec![reason.as_str()], *n)),
    );
    RESIZES.set(&[], totals.resizes as f64);
}

/// Counts a sync that has begun or ended.
pub(crate) fn count_sync(change: &SyncChange) {
    if let Some((kind, seconds)) = change.ended {
        WORKER.observe(&[kind.name()], seconds);
    }
}

/// Counts the first sync of a pod, with its containers, some time after its first sight.
pub(crate) fn count_new_pod(containers: usize, since_first_sight: Option<f64>) {
    CONTAINERS_PER_POD.observe(&[], containers as f64);
    if let Some(seconds) = since_first_sight {
        WORKER_START.observe(&[], seconds);
    }
}

/// Counts a pod of the runtime that nothing else is known of.
pub(crate) fn count_orphan() {
    ORPHANED.increment(&[]);
}

/// Counts a pod that starts over under its uid.
pub(crate) fn count_restart(is_static: bool) {
    RESTARTED.increment(&[if is_static { "true" } else { "" }]);
}
