//! Counts of registrations and durations of allocations, under upstream's names.

use std::time::Duration;

use polylet_metrics::{Metric, register};

static REGISTRATIONS: Metric = Metric::counter(
    "kubelet_device_plugin_registration_total",
    "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
    &["resource_name"],
);

static ALLOCATIONS: Metric = Metric::histogram(
    "kubelet_device_plugin_alloc_duration_seconds",
    "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
    &["resource_name"],
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&REGISTRATIONS, &ALLOCATIONS]);
}

/// Counts a plugin that wants to register.
pub(crate) fn count_registration(resource: &str) {
    REGISTRATIONS.increment(&[resource]);
}

/// Counts an allocation by a plugin that has succeeded or failed.
pub(crate) fn observe_allocation(resource: &str, duration: Duration) {
    ALLOCATIONS.observe(&[resource], duration.as_secs_f64());
}
