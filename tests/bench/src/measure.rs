use std::time::Duration;

/// The percentiles of each duration in a table.
pub(crate) const PERCENTILES: [usize; 3] = [50, 90, 99];

/// Samples of one duration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The mean of the samples; zero without any.
    pub(crate) fn mean(&self) -> Duration {
        let sum: Duration = self.0.iter().sum();
        sum / u32::try_from(self.0.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The percentile of the samples (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).copied().unwrap_or_default()
    }
}

/// Milliseconds with one decimal.
pub(crate) fn ms(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

/// Signed difference from the baseline in milliseconds.
pub(crate) fn over(one: Duration, floor: Duration) -> String {
    format!("{:+.1}", (one.as_secs_f64() - floor.as_secs_f64()) * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut samples = Samples::default();
        for n in 1..=20 {
            samples.add(Duration::from_millis(n));
        }
        assert_eq!(samples.percentile(50), Duration::from_millis(10));
        assert_eq!(samples.percentile(99), Duration::from_millis(20));
        assert_eq!(samples.mean(), Duration::from_micros(10_500));
        assert_eq!(Samples::default().mean(), Duration::ZERO);
        assert_eq!(Samples::default().percentile(50), Duration::ZERO);
        assert_eq!(
            over(Duration::from_millis(3), Duration::from_millis(5)),
            "-2.0"
        );
    }
}
