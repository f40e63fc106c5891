//! Counts of calls, under upstream's names.

use std::time::Duration;

use polylet_metrics::{Metric, register};

const OPERATION: [&str; 1] = ["operation_type"];

/// Upstream's: 5 ms, each 2.5 times the one before.
const BOUNDS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

static OPERATIONS: Metric = Metric::counter(
    "kubelet_runtime_operations_total",
    "[ALPHA] Cumulative number of runtime operations by operation type.",
    &OPERATION,
);
static ERRORS: Metric = Metric::counter(
    "kubelet_runtime_operations_errors_total",
    "[ALPHA] Cumulative number of runtime operation errors by operation type.",
    &OPERATION,
);
static DURATION: Metric = Metric::histogram(
    "kubelet_runtime_operations_duration_seconds",
    "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
    &OPERATION,
    &BOUNDS,
);

/// Makes the counts those of this process.
pub(super) fn register_counts() {
    register(&[&OPERATIONS, &ERRORS, &DURATION]);
}

/// Counts a call that has ended.
pub(super) fn count(method: &str, duration: Duration, failed: bool) {
    let operation = operation(method);
    OPERATIONS.increment(&[&operation]);
    DURATION.observe(&[&operation], duration.as_secs_f64());
    if failed {
        ERRORS.increment(&[&operation]);
    }
}

/// Upstream's word for a method: `list_podsandbox` for `ListPodSandbox`.
fn operation(method: &str) -> String {
    if method == "UpdateContainerResources" {
        return "update_container".to_owned();
    }
    let mut words = String::new();
    for (index, letter) in method
        .replace("PodSandbox", "Podsandbox")
        .chars()
        .enumerate()
    {
        if letter.is_ascii_uppercase() && index > 0 {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_upstream_names() {
        for (method, name) in [
            ("Version", "version"),
            ("RunPodSandbox", "run_podsandbox"),
            ("PodSandboxStatus", "podsandbox_status"),
            ("ListPodSandboxStats", "list_podsandbox_stats"),
            ("UpdateContainerResources", "update_container"),
            ("ImageFsInfo", "image_fs_info"),
        ] {
            assert_eq!(operation(method), name);
        }
    }
}
