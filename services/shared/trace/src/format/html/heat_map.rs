//! Steps over time: when a step became slower.

use jiff::Timestamp;
use maud::{Markup, html};

use super::step_times::StepTimes;
use crate::stats::median;
use crate::text::{duration, printable};

const BUCKETS: usize = 48;
const LEFT: f64 = 300.0;
const CELL: f64 = 18.0;
const ROW: f64 = 22.0;

/// A row for each step, a cell for each part of the period: the median of the traces that began in it, relative to the
/// row's highest. `starts` are those of the traces, in the order of the steps' times.
pub(super) fn heat_map(starts: &[Timestamp], rows: &[&StepTimes]) -> Markup {
    let first = starts.iter().min().copied().unwrap_or_default();
    let last = starts.iter().max().copied().unwrap_or_default();
    let nanos = |time: Timestamp| time.as_nanosecond() - first.as_nanosecond();
    let length = nanos(last).max(1);
    let buckets: Vec<usize> = starts
        .iter()
        .map(|start| {
            let bucket = nanos(*start) * BUCKETS as i128 / length;
            usize::try_from(bucket).unwrap_or(0).min(BUCKETS - 1)
        })
        .collect();
    let (width, height) = (
        LEFT + BUCKETS as f64 * CELL,
        (rows.len() as f64 + 1.0) * ROW,
    );
    let bottom = height - 6.0;
    html! {
        svg class="chart" width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img" {
            title { "Median time of each step over the period" }
            @for (row, step) in rows.iter().enumerate() {
                @let y = row as f64 * ROW;
                text x="0" y=(y + 15.0) { (printable(&step.name, 44)) }
                @let cells = medians(step, &buckets);
                @let highest = cells.iter().flatten().copied().fold(1.0, f64::max);
                @for (column, cell) in cells.iter().enumerate() {
                    @let x = LEFT + column as f64 * CELL;
                    @match cell {
                        Some(time) => {
                            rect class="heat" x=(x) y=(y + 1.0) width=(CELL - 1.0) height=(ROW - 3.0)
                                fill-opacity=(format!("{:.2}", 0.06 + 0.94 * (time / highest).powi(2))) {
                                title { (duration(*time)) }
                            }
                        }
                        None => rect class="empty" x=(x) y=(y + 1.0) width=(CELL - 1.0) height=(ROW - 3.0) {},
                    }
                }
            }
            text class="dim" x=(LEFT) y=(bottom) { (format!("{first:.0}")) }
            text class="dim" x=(width) y=(bottom) text-anchor="end" { (format!("{last:.0}")) }
        }
    }
}

/// The median in each part of the period; none where no trace began.
fn medians(step: &StepTimes, buckets: &[usize]) -> Vec<Option<f64>> {
    let mut times: Vec<Vec<i64>> = vec![Vec::new(); BUCKETS];
    for (time, bucket) in step.times.iter().zip(buckets) {
        if let Some(times) = times.get_mut(*bucket) {
            times.push(*time);
        }
    }
    let middle = |mut times: Vec<i64>| {
        times.sort_unstable();
        (!times.is_empty()).then(|| median(&times))
    };
    times.into_iter().map(middle).collect()
}
