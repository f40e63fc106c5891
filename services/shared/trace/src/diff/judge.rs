//! The tests of all steps, and the verdicts that follow from them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::comparison::{DiffOptions, GroupComparison, ShiftVerdict, StepComparison};
use super::groups::TraceGroup;
use crate::stats::{
    Interval, bootstrap_shift, hodges_lehmann, holm, mann_whitney, median, quantile,
};
use crate::summary::StepName;

/// Judges each group that both sets have, and if there are several, all of them together.
pub(super) fn judge(
    groups: &[TraceGroup<'_>],
    options: &DiffOptions,
) -> (Vec<GroupComparison>, Option<GroupComparison>) {
    let common: Vec<&TraceGroup<'_>> = groups.iter().filter(|group| group.is_common()).collect();
    let mut tested: Vec<TestedGroup> = common
        .iter()
        .map(|group| TestedGroup::new(&group.shape, &[*group], options))
        .collect();
    if tested.len() > 1 {
        tested.push(TestedGroup::new("all shapes", &common, options));
    }
    correct(&mut tested);
    let mut judged: Vec<GroupComparison> = tested
        .into_iter()
        .map(|group| group.finish(options))
        .collect();
    let pooled = if common.len() > 1 { judged.pop() } else { None };
    (judged, pooled)
}

/// Corrects the p values for the number of tests that could end in `slower` or `faster`, over all groups.
fn correct(groups: &mut [TestedGroup]) {
    let decisive = |group: &mut TestedGroup| {
        let can_decide = group.has_enough;
        let rows = std::mem::take(&mut group.rows);
        (can_decide, rows)
    };
    let mut taken: Vec<(bool, Vec<TestedStep>)> = groups.iter_mut().map(decisive).collect();
    let mut tests: Vec<&mut TestedStep> = taken
        .iter_mut()
        .filter(|(can_decide, _)| *can_decide)
        .flat_map(|(_, rows)| rows)
        .filter(|row| row.is_decisive)
        .collect();
    let p_values: Vec<f64> = tests.iter().map(|test| test.comparison.p).collect();
    for (test, adjusted) in tests.iter_mut().zip(holm(&p_values)) {
        test.comparison.p = adjusted;
    }
    for (group, (_, rows)) in groups.iter_mut().zip(taken) {
        group.rows = rows;
    }
}

struct TestedGroup {
    shape: String,
    traces: [usize; 2],
    has_enough: bool,
    /// The total first.
    rows: Vec<TestedStep>,
}

struct TestedStep {
    comparison: StepComparison,
    /// Whether any of its times is so long that its shift could matter. Which set they are of does not matter for
    /// that, so that the choice leaves the tests what they are.
    is_decisive: bool,
}

impl TestedGroup {
    fn new(shape: &str, groups: &[&TraceGroup<'_>], options: &DiffOptions) -> TestedGroup {
        let count =
            |side: fn(&TraceGroup<'_>) -> usize| groups.iter().map(|group| side(group)).sum();
        let traces = [
            count(|group| group.traces.first().map_or(0, Vec::len)),
            count(|group| group.traces.last().map_or(0, Vec::len)),
        ];
        let steps: BTreeSet<&StepName> = groups.iter().flat_map(|group| group.steps()).collect();
        let all = std::iter::once(None).chain(steps.into_iter().map(Some));
        TestedGroup {
            shape: shape.to_owned(),
            traces,
            has_enough: traces.iter().all(|count| *count >= options.min_traces),
            rows: all.map(|step| test(step, groups, options)).collect(),
        }
    }

    fn finish(self, options: &DiffOptions) -> GroupComparison {
        let has_enough = self.has_enough;
        let mut rows = self.rows.into_iter().map(|row| {
            let mut comparison = row.comparison;
            comparison.verdict = match has_enough {
                true => verdict(&comparison, options),
                false => ShiftVerdict::TooFew,
            };
            comparison
        });
        let total = rows.next().unwrap_or_else(|| empty("total"));
        let mut steps: Vec<StepComparison> = rows.collect();
        let size = |step: &StepComparison| Reverse(step.shift_us.estimate.abs() as u64);
        let typical = |step: &StepComparison| Reverse(step.median_us.map(|time| time as u64));
        let is_clear = |step: &StepComparison| step.verdict > ShiftVerdict::Faster;
        steps.sort_by_key(|step| (is_clear(step), size(step), typical(step)));
        GroupComparison {
            shape: self.shape,
            traces: self.traces,
            total,
            steps,
        }
    }
}

/// Tests a step, or the total: within one group as it is, over several groups relative to each one's median, so that
/// their mixture does not matter.
fn test(step: Option<&StepName>, groups: &[&TraceGroup<'_>], options: &DiffOptions) -> TestedStep {
    let [mut plain, mut aligned] = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for group in groups {
        let middle = if groups.len() > 1 {
            group.common_median(step)
        } else {
            0
        };
        let sides = plain.iter_mut().zip(&mut aligned);
        for ((plain, aligned), sample) in sides.zip(group.samples(step)) {
            aligned.extend(sample.iter().map(|time| time - middle));
            plain.extend(sample);
        }
    }
    for sample in plain.iter_mut().chain(&mut aligned) {
        sample.sort_unstable();
    }
    let [a, b] = &aligned;
    let longest = plain.iter().filter_map(|sample| sample.last()).max();
    let none = empty("").shift_us;
    let name = step.map_or_else(|| "total".to_owned(), StepName::to_string);
    TestedStep {
        is_decisive: longest.is_some_and(|longest| *longest as f64 > options.min_shift_us),
        comparison: StepComparison {
            owner: step.and_then(StepName::owner).map(|owner| owner.label()),
            median_us: plain.each_ref().map(|sample| median(sample)),
            p95_us: plain.each_ref().map(|sample| quantile(sample, 0.95)),
            shift_us: hodges_lehmann(a, b).unwrap_or(none),
            p95_shift_us: bootstrap_shift(a, b, 0.95, options.seed),
            p: mann_whitney(a, b).map_or(1.0, |test| test.p),
            ..empty(&name)
        },
    }
}

fn empty(name: &str) -> StepComparison {
    StepComparison {
        step: name.to_owned(),
        owner: None,
        median_us: [0.0; 2],
        p95_us: [0.0; 2],
        shift_us: Interval {
            estimate: 0.0,
            low: 0.0,
            high: 0.0,
        },
        p95_shift_us: None,
        p: 1.0,
        verdict: ShiftVerdict::TooFew,
    }
}

fn verdict(step: &StepComparison, options: &DiffOptions) -> ShiftVerdict {
    let [before, _] = step.median_us;
    let band = options.min_shift_us.max(before * options.min_share);
    let shift = step.shift_us;
    let is_significant = step.p < options.alpha;
    match () {
        () if is_significant && shift.estimate > band => ShiftVerdict::Slower,
        () if is_significant && shift.estimate < -band => ShiftVerdict::Faster,
        () if shift.low >= -band && shift.high <= band => ShiftVerdict::Same,
        () => ShiftVerdict::Unclear,
    }
}
