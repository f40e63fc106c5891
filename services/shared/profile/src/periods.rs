//! How often samples are taken, and what each stands for.

use std::time::Duration;

/// Processor time between two samples, as of Go's profiler.
pub(crate) const CPU_PERIOD: Duration = Duration::from_millis(10);
/// Bytes between two samples of allocations, on average.
pub(crate) const HEAP_PERIOD: usize = 16 * 1024;

/// The values of a record: objects and bytes that were allocated, and that were not freed. A sample stands for
/// as many allocations of its size as there were for one of them to be sampled.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "estimates, and casts of floating-point numbers saturate"
)]
pub(crate) fn heap_values(fields: [usize; crate::buffer::FIELDS]) -> Vec<i64> {
    let [size, freed] = fields;
    let (size, period) = (size.max(1) as f64, HEAP_PERIOD as f64);
    let objects = 1.0 / (1.0 - (-size / period).exp());
    let (objects, bytes) = (objects.round() as i64, (objects * size).round() as i64);
    if freed == 0 {
        vec![objects, bytes, objects, bytes]
    } else {
        vec![objects, bytes, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_for_what_was_not_sampled() {
        // Of large allocations, each is sampled.
        assert_eq!(heap_values([1 << 20, 0]), [1, 1 << 20, 1, 1 << 20]);
        assert_eq!(heap_values([1 << 20, 1]), [1, 1 << 20, 0, 0]);
        let small = heap_values([64, 0]);
        assert!((250..=260).contains(&small[0]), "{small:?}");
        let about = small[0] * 64;
        assert!((about - small[1]).abs() < 64, "{small:?}");
    }
}
