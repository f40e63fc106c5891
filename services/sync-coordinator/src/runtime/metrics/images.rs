//! Counts of images that containers need, under upstream's names.

use std::time::Duration;

use polylet_metrics::{Metric, register};

use crate::core::pod_spec::PullPolicy;

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

static PULL: Metric = Metric::histogram(
    "kubelet_image_pull_duration_seconds",
    "[ALPHA] Duration in seconds to pull an image.",
    &["image_size_in_bytes"],
    &PULL_SECONDS,
);
static ENSURE: Metric = Metric::counter(
    "kubelet_image_manager_ensure_image_requests_total",
    "[ALPHA] Number of ensure-image requests processed by the kubelet.",
    &["pull_policy", "present_locally", "pull_required"],
);
static CHECKS: Metric = Metric::counter(
    "kubelet_imagemanager_image_mustpull_checks_total",
    "[ALPHA] Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
    &["result"],
);
static INTENTS: Metric = Metric::gauge(
    "kubelet_imagemanager_ondisk_pullintents",
    "[ALPHA] Number of ImagePullIntents stored on disk.",
    &[],
);
static RECORDS: Metric = Metric::gauge(
    "kubelet_imagemanager_ondisk_pulledrecords",
    "[ALPHA] Number of ImagePulledRecords stored on disk.",
    &[],
);

/// Makes the counts those of this process.
pub(super) fn register_counts() {
    register(&[&PULL, &ENSURE, &CHECKS, &INTENTS, &RECORDS]);
}

/// Counts a pull, with the time that it waited for others.
pub fn count_pull(bytes: u64, duration: Duration) {
    PULL.observe(&[size_label(bytes)], duration.as_secs_f64());
}

/// Counts an image that a container needs, `None` where it was not decided.
pub fn count_ensure(policy: PullPolicy, present: Option<bool>, pull: Option<bool>) {
    let policy = match policy {
        PullPolicy::Always => "always",
        PullPolicy::IfNotPresent => "ifnotpresent",
        PullPolicy::Never => "never",
    };
    ENSURE.increment(&[policy, truth(present), truth(pull)]);
}

/// Counts a check whether a pod may use a present image, with upstream's word for the result.
pub fn count_check(result: &str) {
    CHECKS.increment(&[result]);
}

/// Sets the numbers of stored intents and records.
pub fn set_stored(intents: usize, records: usize) {
    INTENTS.set(&[], intents as f64);
    RECORDS.set(&[], records as f64);
}

fn truth(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

fn size_label(bytes: u64) -> &'static str {
    let larger = |(from, _): &&(u64, &str)| bytes >= *from;
    let sizes = IMAGE_SIZES.iter().chain([&LARGEST]);
    sizes
        .take_while(larger)
        .last()
        .map_or("", |(_, label)| label)
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
