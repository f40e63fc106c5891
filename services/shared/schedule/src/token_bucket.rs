use std::time::Duration;

use crate::TimePoint;

/// Rounding of a waiting time must not make the token due then fall short of one.
const ROUNDING: f64 = 1e-6;

/// A rate limit: `burst` tokens at once, refilled at an even rate. A clock that is set back adds and
/// removes nothing.
#[derive(Clone, Debug)]
pub struct TokenBucket<T> {
    /// `None` without a limit.
    per_second: Option<f64>,
    burst: f64,
    /// Below zero: so many are reserved ahead.
    tokens: f64,
    refilled_at: T,
}

impl<T: TimePoint> TokenBucket<T> {
    /// A full bucket of `burst` tokens, at least one, refilled with `per_second`. A rate of zero or
    /// less is no limit, as `registryPullQPS` and `eventRecordQPS` define it.
    pub fn new(per_second: f64, burst: f64, now: T) -> Self {
        let burst = burst.max(1.0);
        TokenBucket {
            per_second: Some(per_second).filter(|rate| *rate > 0.0),
            burst,
            tokens: burst,
            refilled_at: now,
        }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// Without a token: when there will be one. Nothing is reserved.
    pub fn try_take(&mut self, now: T) -> Result<(), T> {
        let Some(rate) = self.refill(now) else {
            return Ok(());
        };
        if self.tokens < 1.0 - ROUNDING {
            // Rounded up: a nanosecond early would be too early.
            let wait = seconds((1.0 - self.tokens) / rate).saturating_add(Duration::from_nanos(1));
            return Err(now.plus(wait));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    /// Takes a token ahead of time and returns how long to wait before it may be used. Tokens are
    /// given in the order of the calls.
    pub fn reserve(&mut self, now: T) -> Duration {
        let Some(rate) = self.refill(now) else {
            return Duration::ZERO;
        };
        self.tokens -= 1.0;
        seconds((-self.tokens).max(0.0) / rate)
    }

    /// Adds what has come since the last call. The rate, if there is one.
    fn refill(&mut self, now: T) -> Option<f64> {
        let rate = self.per_second?;
        let elapsed = now.elapsed_since(self.refilled_at).as_secs_f64();
        self.refilled_at = now;
        self.tokens = (self.tokens + elapsed * rate).min(self.burst);
        Some(rate)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap()
    }

    #[test]
    fn takes_a_burst_and_then_the_rate() {
        let ms = Duration::from_millis;
        let mut bucket = TokenBucket::new(10.0, 3.0, Duration::ZERO);
        for _ in 0..3 {
            assert_eq!(bucket.try_take(ms(5)), Ok(()));
        }
        let next = bucket.try_take(ms(5)).unwrap_err();
        assert!(next > ms(104) && next < ms(107), "{next:?}");
        assert_eq!(bucket.try_take(next), Ok(()));
        assert!(bucket.try_take(next).is_err());
    }

    #[test]
    fn a_rate_of_zero_is_no_limit() {
        let mut bucket = TokenBucket::new(0.0, 0.0, at(0));
        assert!((0..1000).all(|_| bucket.try_take(at(0)).is_ok()));
        assert_eq!(bucket.reserve(at(0)), Duration::ZERO);
    }

    #[test]
    fn reservations_wait_in_order() {
        let mut bucket = TokenBucket::new(5.0, 2.0, at(0));
        let waits: Vec<_> = (0..4).map(|_| bucket.reserve(at(0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 200, 400]);
        // The two that wait have their tokens; after a second there are others.
        assert_eq!(bucket.reserve(at(1000)).as_millis(), 0);
    }

    #[test]
    fn a_clock_set_back_neither_fills_nor_blocks() {
        let mut bucket = TokenBucket::new(5.0, 1.0, at(0));
        assert_eq!(bucket.try_take(at(0)), Ok(()));
        assert_eq!(
            bucket.try_take(at(-3_600_000)),
            Err(at(-3_599_800).plus(Duration::from_nanos(1)))
        );
        assert_eq!(bucket.try_take(at(-3_599_799)), Ok(()));
    }

    proptest! {
        #[test]
        fn reservations_stay_below_the_limit(gaps in prop::collection::vec(0_i64..500, 1..60), rate in 1_i32..20, burst in 1_i32..20) {
            let mut bucket = TokenBucket::new(f64::from(rate), f64::from(burst), at(0));
            let mut now = 0;
            let mut starts = Vec::new();
            for gap in gaps {
                now += gap;
                starts.push(now as f64 / 1e3 + bucket.reserve(at(now)).as_secs_f64());
            }
            for (n, first) in starts.iter().enumerate() {
                for (m, last) in starts.iter().enumerate().skip(n) {
                    let allowed = f64::from(burst) + (last - first) * f64::from(rate) + 0.01;
                    prop_assert!((m - n + 1) as f64 <= allowed + 1.0);
                }
            }
        }

        #[test]
        fn the_time_of_the_next_token_is_exact(rate in 0.01..5000.0f64, burst in 1.0..5.0f64) {
            let mut bucket = TokenBucket::new(rate, burst, at(0));
            let mut now = at(0);
            for _ in 0..20 {
                if let Err(due) = bucket.try_take(now) {
                    prop_assert!(due > now);
                    now = due;
                    prop_assert_eq!(bucket.try_take(now), Ok(()));
                }
            }
        }
    }
}
