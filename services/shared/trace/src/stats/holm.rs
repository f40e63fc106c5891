//! Correction of several tests at once.

/// Holm's adjusted p values, in the order of the given ones: of all tests whose adjusted value is below `alpha`, one or
/// more is wrong with a probability of `alpha` at most.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    let p = |at: usize| p_values.get(at).copied().unwrap_or(1.0);
    order.sort_by(|a, b| p(*a).total_cmp(&p(*b)));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        let remaining = p_values.len() - rank;
        highest = highest.max((p(at) * remaining as f64).min(1.0));
        if let Some(value) = adjusted.get_mut(at) {
            *value = highest;
        }
    }
    adjusted
}
