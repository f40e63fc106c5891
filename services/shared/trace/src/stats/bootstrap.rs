//! The shift of a quantile.

use fastrand::Rng;

use super::interval::Interval;
use super::quantile::quantile;

/// The size from which on the 95th percentile of a sample says something.
pub const MIN_BOOTSTRAP: usize = 100;

const RESAMPLES: usize = 1000;

/// By how much the quantile `q` of `b` is larger than that of `a`, with the interval of bootstrapped differences. Both
/// samples are sorted; `None` if one has less than [`MIN_BOOTSTRAP`] values. The same seed has the same result.
pub fn bootstrap_shift(a: &[i64], b: &[i64], q: f64, seed: u64) -> Option<Interval> {
    if a.len().min(b.len()) < MIN_BOOTSTRAP {
        return None;
    }
    let mut rng = Rng::with_seed(seed);
    let mut shifts: Vec<i64> = (0..RESAMPLES)
        .map(|_| resampled(b, q, &mut rng).saturating_sub(resampled(a, q, &mut rng)))
        .collect();
    shifts.sort_unstable();
    Some(Interval {
        estimate: quantile(b, q) - quantile(a, q),
        low: quantile(&shifts, 0.025),
        high: quantile(&shifts, 0.975),
    })
}

/// The quantile of a sample that is drawn from another one, with replacement.
///
/// Only the largest values are drawn, in falling order: the largest of `n` uniform numbers is distributed as the n-th
/// root of one, and those below it as the `n - 1` others within it.
fn resampled(sorted: &[i64], q: f64, rng: &mut Rng) -> i64 {
    let count = sorted.len();
    let rank = ((q * count as f64).ceil() as usize).clamp(1, count);
    let mut position = 1.0;
    for remaining in (rank..=count).rev() {
        position *= rng.f64().powf(1.0 / remaining as f64);
    }
    let index = (position * count as f64) as usize;
    let value = sorted.get(index.min(count - 1));
    value.copied().unwrap_or_default()
}
