//! What follows from the starts of pods after an upgrade.

use std::time::Duration;

use jiff::Timestamp;
use polylet_trace::TraceSummary;
use polylet_trace::diff::{Comparison, GroupComparison, ShiftVerdict};

use super::journal::StartComparison;
use crate::core::text;

/// The last starts before an upgrade, at most `count` of them: those that began after the upgrade before.
pub fn last_starts(
    mut traces: Vec<TraceSummary>,
    since: Option<Timestamp>,
    count: usize,
) -> Vec<TraceSummary> {
    traces.retain(|trace| since.is_none_or(|since| trace.start >= since));
    traces.sort_by_key(|trace| (trace.end(), trace.id));
    traces.split_off(traces.len().saturating_sub(count))
}

/// What a comparison of the starts before an upgrade with those after it comes to. One step that is slower makes
/// them slower; else the verdict is that of the whole duration.
pub fn start_comparison(comparison: &Comparison) -> StartComparison {
    let total = comparison.overall().map(|group| group.total.verdict);
    let verdict = match total {
        _ if comparison.has(ShiftVerdict::Slower) => ShiftVerdict::Slower,
        Some(total) => total,
        None => ShiftVerdict::TooFew,
    };
    let [before, after] = comparison
        .traces
        .map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let groups = comparison.shapes.iter().chain(&comparison.pooled);
    StartComparison {
        verdict: verdict.label().to_owned(),
        before,
        after,
        slower: groups.flat_map(slower_steps).collect(),
    }
}

/// Whether the version before is brought back because of it.
pub fn is_given_up(starts: &StartComparison, fails_on_slower: bool) -> bool {
    fails_on_slower && starts.verdict == ShiftVerdict::Slower.label()
}

/// A comparison in a few words.
pub fn starts_in_words(starts: &StartComparison) -> String {
    let StartComparison {
        verdict,
        before,
        after,
        slower,
    } = starts;
    let slower = match slower.as_slice() {
        [] => String::new(),
        slower => format!(": {}", slower.join(", ")),
    };
    format!("{verdict} ({after} after, {before} before){slower}")
}

fn slower_steps(group: &GroupComparison) -> impl Iterator<Item = String> {
    let slower = group
        .rows()
        .filter(|row| row.verdict == ShiftVerdict::Slower);
    slower.map(|row| {
        let shift = Duration::try_from_secs_f64(row.shift_us.estimate / 1e6).unwrap_or_default();
        let (step, shift, shape) = (&row.step, text::duration(shift), &group.shape);
        format!("{step} +{shift} ({shape})")
    })
}

#[cfg(test)]
mod tests {
    use polylet_trace::diff::{DiffOptions, compare};

    use super::*;
    use crate::core::trace_fixture::start;

    /// Starts whose sandbox takes about a time, and one of whose containers takes another.
    fn starts(first: u8, count: u8, sandbox: u64, create: u64) -> Vec<TraceSummary> {
        let each = first..first + count;
        let one = |id: u8| {
            let noise = u64::from(id % 7);
            start(
                id,
                &[
                    ("s", "cri.RunPodSandbox", sandbox + noise),
                    ("s", "cri.CreateContainer", create + noise % 3),
                ],
            )
        };
        each.map(one).collect()
    }

    fn judged(before: &[TraceSummary], after: &[TraceSummary]) -> StartComparison {
        start_comparison(&compare(before, after, &DiffOptions::default()))
    }

    #[test]
    fn a_slower_step_is_a_reason_to_go_back_if_that_is_asked_for() {
        let before = starts(0, 30, 100, 10);
        for (after, verdict, is_slower) in [
            (starts(40, 30, 100, 10), "same", false),
            (starts(40, 30, 100, 40), "slower", true),
            // One step slower, another one faster.
            (starts(40, 30, 70, 40), "slower", true),
            (starts(40, 30, 70, 10), "faster", false),
            (starts(40, 9, 100, 400), "too few", false),
            (Vec::new(), "too few", false),
        ] {
            let found = judged(&before, &after);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert_eq!(is_given_up(&found, true), is_slower, "{found:?}");
            assert!(!is_given_up(&found, false));
            assert_eq!(found.slower.is_empty(), !is_slower, "{found:?}");
            assert_eq!(
                (found.before, usize::try_from(found.after)),
                (30, Ok(after.len()))
            );
        }
        // Nothing to compare with.
        assert_eq!(
            judged(&before[..9], &starts(40, 30, 100, 400)).verdict,
            "too few"
        );
    }

    #[test]
    fn a_comparison_is_shown_in_a_line() {
        let found = judged(&starts(0, 30, 100, 10), &starts(40, 30, 100, 40));
        let text = starts_in_words(&found);
        let begin = "slower (30 after, 30 before): total +30.0ms (1 container), s/cri.CreateContainer +30.0ms";
        assert!(text.starts_with(begin), "{text}");
        let none = judged(&[], &[]);
        assert_eq!(starts_in_words(&none), "too few (0 after, 0 before)");
    }

    #[test]
    fn only_the_last_starts_of_the_version_before_count() {
        let mut traces = starts(1, 20, 100, 10);
        for (second, trace) in (0..).zip(&mut traces) {
            trace.start = Timestamp::from_second(second).unwrap();
        }
        traces.reverse();
        let ids = |since: Option<i64>, count| -> Vec<u8> {
            let since = since.map(|since| Timestamp::from_second(since).unwrap());
            let last = last_starts(traces.clone(), since, count);
            last.iter().map(|trace| trace.id[0]).collect()
        };
        assert_eq!(ids(None, 3), [18, 19, 20]);
        assert_eq!(ids(Some(18), 3), [19, 20]);
        assert_eq!(ids(Some(100), 3), [0; 0]);
        assert_eq!(ids(None, 100).len(), 20);
    }
}
