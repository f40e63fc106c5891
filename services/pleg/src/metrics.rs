//! Counts of relists, under upstream's names.

use std::time::Duration;

use jiff::Timestamp;
use polylet_metrics::{DEFAULT_BUCKETS, Metric, register};

static DURATION: Metric = Metric::histogram(
    "kubelet_pleg_relist_duration_seconds",
    "[ALPHA] Duration in seconds for relisting pods in PLEG.",
    &[],
    &DEFAULT_BUCKETS,
);
static INTERVAL: Metric = Metric::histogram(
    "kubelet_pleg_relist_interval_seconds",
    "[ALPHA] Interval in seconds between relisting in PLEG.",
    &[],
    &DEFAULT_BUCKETS,
);
static POD_DURATION: Metric = Metric::histogram(
    "kubelet_pleg_pod_relist_duration_seconds",
    "[ALPHA] Duration in seconds for relisting a single pod in PLEG.",
    &[],
    &DEFAULT_BUCKETS,
);
static LAST_SEEN: Metric = Metric::gauge(
    "kubelet_pleg_last_seen_seconds",
    "[ALPHA] Timestamp in seconds when PLEG was last seen active.",
    &[],
);
// The state stream loses nothing: it has nothing to discard.
static DISCARDED: Metric = Metric::counter(
    "kubelet_pleg_discard_events",
    "[ALPHA] The number of discard events in PLEG.",
    &[],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&DURATION, &INTERVAL, &POD_DURATION, &LAST_SEEN, &DISCARDED]);
}

/// Counts a list that begins, some time after the one before.
pub(crate) fn count_interval(since_last: Option<Duration>) {
    LAST_SEEN.set(&[], Timestamp::now().as_second() as f64);
    if let Some(interval) = since_last {
        INTERVAL.observe(&[], interval.as_secs_f64());
    }
}

/// Counts a list that has ended.
pub(crate) fn count_list(duration: Duration) {
    DURATION.observe(&[], duration.as_secs_f64());
}

/// Counts the inspection of a pod.
pub(crate) fn count_inspection(duration: Duration) {
    POD_DURATION.observe(&[], duration.as_secs_f64());
}
