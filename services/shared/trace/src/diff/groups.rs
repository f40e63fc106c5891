//! Traces by the work they do, and the samples of their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::stats::median;
use crate::summary::{StepName, TraceSummary};

/// Traces of both sets that do the same work.
#[derive(Debug)]
pub(super) struct TraceGroup<'a> {
    pub(super) shape: String,
    pub(super) traces: [Vec<&'a TraceSummary>; 2],
}

/// Groups by root, shape and outcome, the largest first, also those that a set lacks.
pub(super) fn groups<'a>(a: &'a [TraceSummary], b: &'a [TraceSummary]) -> Vec<TraceGroup<'a>> {
    let mut groups: BTreeMap<String, [Vec<&TraceSummary>; 2]> = BTreeMap::new();
    for summary in a {
        let [of_a, _] = groups.entry(label(summary)).or_default();
        of_a.push(summary);
    }
    for summary in b {
        let [_, of_b] = groups.entry(label(summary)).or_default();
        of_b.push(summary);
    }
    let groups = groups.into_iter();
    let mut groups: Vec<_> = groups
        .map(|(shape, traces)| TraceGroup { shape, traces })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn label(summary: &TraceSummary) -> String {
    let mut label = summary.shape.clone();
    if summary.root != "pod.start" {
        label = format!("{}: {label}", summary.root);
    }
    match summary.outcome.as_str() {
        "ready" => label,
        "" => format!("{label} (incomplete)"),
        outcome => format!("{label} ({outcome})"),
    }
}

/// The duration, or the time of a step, in microseconds.
pub(super) fn time_of(summary: &TraceSummary, step: Option<&StepName>) -> i64 {
    let time = match step {
        Some(step) => summary.steps.get(step).copied().unwrap_or_default(),
        None => summary.duration,
    };
    micros(time)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros())
        .unwrap_or(i64::MAX / 4)
        .min(i64::MAX / 4)
}

impl TraceGroup<'_> {
    pub(super) fn len(&self) -> usize {
        self.traces.iter().map(Vec::len).sum()
    }

    /// Whether both sets have traces of it.
    pub(super) fn is_common(&self) -> bool {
        self.traces.iter().all(|traces| !traces.is_empty())
    }

    /// The steps on the critical paths.
    pub(super) fn steps(&self) -> BTreeSet<&StepName> {
        let traces = self.traces.iter().flatten();
        traces.flat_map(|trace| trace.steps.keys()).collect()
    }

    /// The sorted samples of a step, or of the durations.
    pub(super) fn samples(&self, step: Option<&StepName>) -> [Vec<i64>; 2] {
        let sample = |traces: &Vec<&TraceSummary>| {
            let times = traces.iter().map(|trace| time_of(trace, step));
            let mut times: Vec<i64> = times.collect();
            times.sort_unstable();
            times
        };
        self.traces.each_ref().map(sample)
    }

    /// The median over both sets.
    pub(super) fn common_median(&self, step: Option<&StepName>) -> i64 {
        let mut all = self.samples(step).concat();
        all.sort_unstable();
        median(&all) as i64
    }
}
