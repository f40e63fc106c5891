//! Histograms, each a small drawing.

use maud::{Markup, html};

use crate::stats::quantile;
use crate::text::duration;

const BARS: usize = 30;

/// The number of values in equal parts between zero and the 99th percentile; what is beyond is in the last one.
fn counts(sorted: &[i64]) -> [usize; BARS] {
    let end = quantile(sorted, 0.99).max(1.0);
    let mut counts = [0; BARS];
    for value in sorted {
        let bar = (*value as f64 / end * BARS as f64) as usize;
        if let Some(count) = counts.get_mut(bar.min(BARS - 1)) {
            *count += 1;
        }
    }
    counts
}

/// Draws the histogram of a sorted sample.
pub(super) fn histogram(sorted: &[i64], width: f64, height: f64, class: &str) -> Markup {
    let counts = counts(sorted);
    let highest = counts.iter().max().copied().unwrap_or(0).max(1) as f64;
    let step = width / BARS as f64;
    let mut bars = String::new();
    for (at, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let tall = (*count as f64 / highest * height).max(1.0);
        let (x, y, wide) = (at as f64 * step, height - tall, step - 0.7);
        bars.push_str(&format!("M{x:.1} {y:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z"));
    }
    let end = duration(quantile(sorted, 0.99));
    html! {
        svg class="chart" width=(width) height=(height + 1.0) viewBox={ "0 0 " (width) " " (height + 1.0) } role="img" {
            title { (sorted.len()) " values from 0 to " (end) " (p99); longer ones are in the last bar" }
            line class="axis" x1="0" x2=(width) y1=(height + 0.5) y2=(height + 0.5) {}
            path class=(class) d=(bars) {}
        }
    }
}
