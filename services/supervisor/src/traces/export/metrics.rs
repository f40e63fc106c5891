//! Counts of exported spans.

use polylet_metrics::{Metric, register};

/// Spans that a collector has accepted.
pub(super) static EXPORTED: Metric = Metric::counter(
    "polylet_collector_spans_exported_total",
    "Spans that the collector has accepted.",
    &[],
);
/// Spans that were to be exported and are lost.
pub(super) static DROPPED: Metric = Metric::counter(
    "polylet_collector_spans_dropped_total",
    "Spans that were to be exported and were not: the queue was full, or the collector rejected them.",
    &[],
);

/// Makes the counts those of this process.
pub(super) fn register_counts() {
    let counts = [&EXPORTED, &DROPPED];
    register(&counts);
    // A rate sees the first ones only beside a count before them.
    counts.iter().for_each(|count| count.add(&[], 0.0));
}
