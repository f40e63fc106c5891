//! Hodges and Lehmann's estimate of the shift between two samples.

use super::interval::Interval;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// By how much values of `b` are larger than those of `a`: the median of the differences of all pairs, and the
/// interval between those differences that the rank test would not reject, by the normal distribution. Both samples
/// are sorted. `None` if one is empty.
pub fn hodges_lehmann(a: &[i64], b: &[i64]) -> Option<Interval> {
    let pairs = (a.len() as u64).checked_mul(b.len() as u64)?;
    if pairs == 0 {
        return None;
    }
    let (n1, n2) = (a.len() as f64, b.len() as f64);
    let spread = Z * (n1 * n2 * (n1 + n2 + 1.0) / 12.0).sqrt();
    // How many differences are beyond each end.
    let beyond = (n1 * n2 / 2.0 - spread).floor().max(0.0) as u64;
    let beyond = beyond.saturating_sub(1).min((pairs - 1) / 2);
    let at = |rank: u64| difference(a, b, rank) as f64;
    Some(Interval {
        estimate: f64::midpoint(at((pairs - 1) / 2), at(pairs / 2)),
        low: at(beyond),
        high: at(pairs - 1 - beyond),
    })
}

/// The difference with a rank, from 0, among those of all pairs. Found by bisection, as there may be millions of pairs.
fn difference(a: &[i64], b: &[i64], rank: u64) -> i64 {
    let ends = |values: &[i64]| {
        let first = values.first().copied().unwrap_or_default();
        (first, values.last().copied().unwrap_or_default())
    };
    let ((first_a, last_a), (first_b, last_b)) = (ends(a), ends(b));
    let mut low = first_b.saturating_sub(last_a);
    let mut high = last_b.saturating_sub(first_a);
    while low < high {
        let middle = low.midpoint(high);
        // The midpoint is rounded towards zero.
        let middle = if middle == high { low } else { middle };
        if count_up_to(a, b, middle) > rank {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The number of pairs with a difference of at most `limit`.
fn count_up_to(a: &[i64], b: &[i64], limit: i64) -> u64 {
    let mut count = 0;
    let mut up_to = 0;
    for value in a {
        let highest = value.saturating_add(limit);
        let further = b.get(up_to..).unwrap_or_default().iter();
        up_to += further.take_while(|other| **other <= highest).count();
        count += up_to as u64;
    }
    count
}
