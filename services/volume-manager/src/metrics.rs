//! Durations of operations, under upstream's names.

use std::time::Duration;

use polylet_metrics::{Metric, register};

use crate::core::operation::Operation;
use crate::core::volume_counts::VolumeCounts;

static DURATION: Metric = Metric::histogram(
    "storage_operation_duration_seconds",
    "[ALPHA] Storage operation duration",
    &["migrated", "operation_name", "status", "volume_plugin"],
    &[
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
    ],
);

static VOLUMES: Metric = Metric::gauge(
    "volume_manager_total_volumes",
    "[ALPHA] Number of volumes in Volume Manager",
    &["plugin_name", "state"],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&DURATION, &VOLUMES]);
}

/// Sets the numbers of volumes.
pub(crate) fn set_volumes(counts: &VolumeCounts) {
    let totals = counts.totals().iter();
    let series = totals.map(|(key, count)| (vec![key.0.as_str(), key.1], *count as f64));
    VOLUMES.replace(series);
}

/// Counts an operation on a volume that has ended.
pub(crate) fn count(operation: &Operation, duration: Duration, failed: bool) {
    let (volume, name) = match operation {
        Operation::SetUp(volume, _) => (volume, "volume_mount"),
        Operation::TearDown(volume) => (volume, "volume_unmount"),
        Operation::Update(..) | Operation::RemovePodDir(_) => return,
    };
    let status = if failed { "fail-unknown" } else { "success" };
    // The directory of a plugin, as its name.
    let plugin = volume.plugin.replace('~', "/");
    DURATION.observe(&["false", name, status, &plugin], duration.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::layout::VolumeId;

    #[test]
    fn plugins_and_operations_have_upstream_names() {
        let volume = VolumeId::new("u", "kubernetes.io~empty-dir", "data");
        count(&Operation::TearDown(volume), Duration::from_secs(1), true);
        let series = DURATION.series();
        let values = series.iter().map(|series| {
            let labels = series.labels.iter().map(|(_, value)| value.as_str());
            labels.collect::<Vec<_>>().join(" ")
        });
        let values: Vec<String> = values.collect();
        let expected = "false volume_unmount fail-unknown kubernetes.io/empty-dir".to_owned();
        assert!(values.contains(&expected), "{values:?}");
    }
}
