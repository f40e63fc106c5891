use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A point on some time line: the wall clock, the monotonic clock, or the time since a fixed start.
pub trait TimePoint: Copy + Ord {
    /// The time since `earlier`; zero when `earlier` is later.
    fn elapsed_since(self, earlier: Self) -> Duration;

    /// This point plus `duration`; the last representable point on overflow.
    fn plus(self, duration: Duration) -> Self;
}

impl TimePoint for Timestamp {
    fn elapsed_since(self, earlier: Self) -> Duration {
        Duration::try_from(self.duration_since(earlier)).unwrap_or_default()
    }

    fn plus(self, duration: Duration) -> Self {
        self.checked_add(duration).unwrap_or(Timestamp::MAX)
    }
}

impl TimePoint for Instant {
    fn elapsed_since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }

    fn plus(self, duration: Duration) -> Self {
        // Thirty years, as `tokio::time` does: `Instant` names no last point.
        let far = Duration::from_secs(86_400 * 365 * 30);
        self.checked_add(duration).unwrap_or(self + far)
    }
}

impl TimePoint for Duration {
    fn elapsed_since(self, earlier: Self) -> Duration {
        self.saturating_sub(earlier)
    }

    fn plus(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let later = at.plus(Duration::from_secs(5));
        assert_eq!(later.elapsed_since(at), Duration::from_secs(5));
        assert_eq!(at.elapsed_since(later), Duration::ZERO);
        assert_eq!(at.plus(Duration::MAX), Timestamp::MAX);
        let now = Instant::now();
        assert!(now.plus(Duration::MAX) > now);
        assert_eq!(Duration::MAX.plus(Duration::from_secs(1)), Duration::MAX);
    }
}
