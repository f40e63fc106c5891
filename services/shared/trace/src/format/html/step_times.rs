//! The times of each step over all traces.

use std::collections::BTreeMap;

use crate::stats::quantile;
use crate::summary::{StepName, TraceSummary};
use crate::text::printable;

/// Longer names are cut off, in characters.
pub(super) const MAX_NAME: usize = 100;

/// A row of the page.
#[derive(Debug)]
pub(super) struct StepTimes {
    pub(super) name: String,
    /// Whose time it is.
    pub(super) owner: &'static str,
    /// In microseconds, in the order of the traces; zero where the step is absent.
    pub(super) times: Vec<i64>,
    /// The same, without zeros and sorted.
    pub(super) present: Vec<i64>,
    pub(super) sum: i128,
}

impl StepTimes {
    pub(super) fn new(name: &str, owner: &'static str, times: Vec<i64>) -> StepTimes {
        let mut present: Vec<i64> = times.iter().copied().filter(|time| *time > 0).collect();
        present.sort_unstable();
        StepTimes {
            name: printable(name, MAX_NAME),
            owner,
            sum: times.iter().map(|time| i128::from(*time)).sum(),
            times,
            present,
        }
    }

    /// A quantile of the traces that have the step.
    pub(super) fn quantile(&self, q: f64) -> f64 {
        quantile(&self.present, q)
    }
}

/// The durations of the traces.
pub(super) fn totals(summaries: &[&TraceSummary]) -> StepTimes {
    let times = summaries.iter().map(|summary| micros(summary.duration));
    StepTimes::new("total", "", times.collect())
}

/// The steps, those with most time first.
pub(super) fn steps(summaries: &[&TraceSummary]) -> Vec<StepTimes> {
    let mut times: BTreeMap<&StepName, Vec<i64>> = BTreeMap::new();
    for (at, summary) in summaries.iter().enumerate() {
        for (step, time) in &summary.steps {
            let of_step = times
                .entry(step)
                .or_insert_with(|| vec![0; summaries.len()]);
            if let Some(cell) = of_step.get_mut(at) {
                *cell = micros(*time);
            }
        }
    }
    let mut steps: Vec<StepTimes> = times
        .into_iter()
        .map(|(step, times)| {
            let owner = step.owner().map_or("unattributed", |owner| owner.label());
            StepTimes::new(&step.to_string(), owner, times)
        })
        .collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.sum));
    steps
}

fn micros(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
