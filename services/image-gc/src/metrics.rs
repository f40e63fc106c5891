//! Counts of removed images, under upstream's names.

use polylet_metrics::{Metric, register};

static COLLECTED: Metric = Metric::counter(
    "kubelet_image_garbage_collected_total",
    "[ALPHA] Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
    &["reason"],
);

/// Makes the counts those of this process.
pub(crate) fn register_counts() {
    register(&[&COLLECTED]);
}

/// Counts an image that was removed for its age, or else for space.
pub(crate) fn count_removal(for_age: bool) {
    COLLECTED.increment(&[if for_age { "age" } else { "space" }]);
}
