//! Mann and Whitney's test.

use super::exact_distribution;

/// The result of a two-sided test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
    /// The number of pairs in which the second value is larger; ties count half.
    pub u: f64,
    /// The probability of such a U or one further from its mean, if both samples are of one distribution.
    pub p: f64,
}

/// Whether values of `b` tend to be larger or smaller than those of `a`. `None` if a sample is empty.
///
/// As scipy's `mannwhitneyu(b, a)` does by default: exact if there are no ties and a sample has 8 values at most, else
/// by the normal distribution, corrected for ties and continuity.
pub fn mann_whitney(a: &[i64], b: &[i64]) -> Option<RankTest> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let ranks = Ranks::new(a, b);
    let (n1, n2) = (a.len(), b.len());
    let (count1, count2) = (n1 as f64, n2 as f64);
    let u = ranks.sum_of_b - count2 * (count2 + 1.0) / 2.0;
    let larger = u.max(count1 * count2 - u);
    let exact = (!ranks.has_ties && n1.min(n2) <= 8)
        .then(|| exact_distribution::at_least(larger, n1, n2))
        .flatten();
    let p = exact.unwrap_or_else(|| normal_tail(larger, count1, count2, ranks.tie_term));
    Some(RankTest {
        u,
        p: (2.0 * p).clamp(0.0, 1.0),
    })
}

/// The probability of `u` or more by the normal distribution.
fn normal_tail(u: f64, n1: f64, n2: f64, tie_term: f64) -> f64 {
    let n = n1 + n2;
    let variance = n1 * n2 / 12.0 * ((n + 1.0) - tie_term / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (u - n1 * n2 / 2.0 - 0.5) / variance.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

struct Ranks {
    sum_of_b: f64,
    has_ties: bool,
    /// The sum of `t³ - t` over groups of `t` equal values.
    tie_term: f64,
}

impl Ranks {
    fn new(a: &[i64], b: &[i64]) -> Ranks {
        let tagged = |values: &[i64], of_b: bool| {
            let values = values.iter().map(move |value| (*value, of_b));
            values.collect::<Vec<_>>()
        };
        let mut all = tagged(a, false);
        all.extend(tagged(b, true));
        all.sort_unstable();
        let mut ranks = Ranks {
            sum_of_b: 0.0,
            has_ties: false,
            tie_term: 0.0,
        };
        let mut before = 0.0;
        for group in all.chunk_by(|one, other| one.0 == other.0) {
            let size = group.len() as f64;
            let of_b = group.iter().filter(|(_, of_b)| *of_b).count() as f64;
            ranks.sum_of_b += of_b * (before + (size + 1.0) / 2.0);
            ranks.has_ties |= group.len() > 1;
            ranks.tie_term += size * size * size - size;
            before += size;
        }
        ranks
    }
}
