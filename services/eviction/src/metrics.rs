//! Counts of evictions, under upstream's names.

use polylet_metrics::{Metric, register};

static EVICTIONS: Metric = Metric::counter(
    "kubelet_evictions",
    "[ALPHA] Cumulative number of pod evictions by eviction signal",
    &["eviction_signal"],
);
static CGROUP_VERSION: Metric = Metric::gauge(
    "kubelet_cgroup_version",
    "[ALPHA] cgroup version on the hosts.",
    &[],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts(unified_cgroups: bool) {
    register(&[&EVICTIONS, &CGROUP_VERSION]);
    let version = if unified_cgroups { 2.0 } else { 1.0 };
    CGROUP_VERSION.set(&[], version);
}

/// Counts an eviction for a signal.
pub(crate) fn count_eviction(signal: &str) {
    EVICTIONS.increment(&[signal]);
}
