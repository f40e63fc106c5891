//! The distribution of Mann and Whitney's U under the null hypothesis, without ties.

/// The largest sample beside a small one whose counts fit into the integers here.
const MAX_SAMPLE: usize = 4096;
/// The largest size of the smaller sample.
const MAX_SMALLER: usize = 8;

/// The probability of `u` or more; `None` if the samples are too large for an exact result. The smaller sample may have
/// 8 values.
///
/// The number of orders with each U are the coefficients of a Gaussian binomial, a product and quotient of polynomials
/// `1 - x^k`. All of them are integers below 2^127.
pub(super) fn at_least(u: f64, n1: usize, n2: usize) -> Option<f64> {
    let (smaller, larger) = (n1.min(n2), n1.max(n2));
    if smaller > MAX_SMALLER || larger > MAX_SAMPLE {
        return None;
    }
    let mut counts: Vec<i128> = vec![0; n1 * n2 + 1];
    *counts.first_mut()? = 1;
    for k in 1..=smaller {
        multiply(&mut counts, larger + k);
        divide(&mut counts, k);
    }
    let total: i128 = counts.iter().sum();
    let from = u.ceil().max(0.0) as usize;
    let tail: i128 = counts.iter().skip(from).sum();
    Some(tail as f64 / total as f64)
}

/// Multiplies by `1 - x^k`.
fn multiply(counts: &mut [i128], k: usize) {
    for at in (k..counts.len()).rev() {
        let lower = counts.get(at - k).copied().unwrap_or_default();
        if let Some(count) = counts.get_mut(at) {
            *count -= lower;
        }
    }
}

/// Divides by `1 - x^k`.
fn divide(counts: &mut [i128], k: usize) {
    for at in k..counts.len() {
        let lower = counts.get(at - k).copied().unwrap_or_default();
        if let Some(count) = counts.get_mut(at) {
            *count += lower;
        }
    }
}
