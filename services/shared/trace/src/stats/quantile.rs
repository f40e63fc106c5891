//! Quantiles of samples.

/// The quantile of a sorted sample, `q` from 0 to 1, interpolated between neighbours (Hyndman and Fan's type 7, which
/// is numpy's and R's default). Zero if the sample is empty.
pub fn quantile(sorted: &[i64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let position = q.clamp(0.0, 1.0) * last as f64;
    let at = |index: usize| {
        sorted
            .get(index.min(last))
            .map_or(0.0, |value| *value as f64)
    };
    let (below, above) = (at(position.floor() as usize), at(position.ceil() as usize));
    below + (above - below) * position.fract()
}

/// The median of a sorted sample.
pub fn median(sorted: &[i64]) -> f64 {
    quantile(sorted, 0.5)
}
