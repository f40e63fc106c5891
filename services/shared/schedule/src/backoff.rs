use std::time::Duration;

/// Exponential delays: `initial`, doubled for each further failure, at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The delay after the first failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl BackoffPolicy {
    /// A policy from its shortest and its longest delay.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        BackoffPolicy { initial, max }
    }

    /// The delay after this many failures in a row: zero without a failure, `initial` after one.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.initial.saturating_mul(factor).min(self.max)
    }

    /// The same, stretched by the share `jitter` (0.5: half as long again), which the caller draws
    /// at random, so that many nodes do not retry at the same time.
    pub fn delay_with_jitter(&self, failures: u32, jitter: f64) -> Duration {
        let delay = self.delay(failures).as_secs_f64() * (1.0 + jitter.max(0.0));
        Duration::try_from_secs_f64(delay).unwrap_or(self.max)
    }
}

/// A [`BackoffPolicy`] and the failures in a row so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    /// No failures yet.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Backoff {
            policy: BackoffPolicy::new(initial, max),
            failures: 0,
        }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.delay()
    }

    /// The same with jitter: see [`BackoffPolicy::delay_with_jitter`].
    pub fn next_delay_with_jitter(&mut self, jitter: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.delay_with_jitter(self.failures, jitter)
    }

    /// The delay after the failures so far; zero without a failure.
    pub fn delay(&self) -> Duration {
        self.policy.delay(self.failures)
    }

    /// Failures since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Forgets the failures after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::new(MS(100), MS(1000));
        assert_eq!((backoff.delay(), backoff.failures()), (Duration::ZERO, 0));
        let delays: Vec<_> = (0..6).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!((backoff.delay(), backoff.failures()), (MS(1000), 6));
        backoff.reset();
        assert_eq!(backoff.next_delay(), MS(100));
        assert_eq!(backoff.next_delay_with_jitter(0.5), MS(300));
        assert_eq!(backoff.next_delay_with_jitter(-1.0), MS(400));
    }

    #[test]
    fn container_restarts_are_delayed_as_upstream_does() {
        let policy = BackoffPolicy::new(Duration::from_secs(10), Duration::from_secs(300));
        let delays: Vec<_> = (0..8).map(|n| policy.delay(n).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(policy.delay(u32::MAX), policy.max);
        let below = BackoffPolicy::new(MS(10), MS(5));
        assert_eq!(below.delay(1), MS(5));
    }

    proptest! {
        #[test]
        fn delays_never_shrink(initial in 0u64..10_000, max in 0u64..1_000_000, failures in 0u32..100) {
            let policy = BackoffPolicy::new(MS(initial), MS(max));
            prop_assert!(policy.delay(failures) <= policy.delay(failures + 1));
            prop_assert!(policy.delay(failures) <= policy.max);
        }

        #[test]
        fn jitter_only_stretches(jitter in 0.0..1.0f64, failures in 0u32..20) {
            let mut plain = Backoff::new(MS(10), MS(1000));
            let mut stretched = plain;
            for _ in 0..failures {
                let delay = plain.next_delay();
                let jittered = stretched.next_delay_with_jitter(jitter);
                prop_assert!(jittered >= delay && jittered <= delay * 2);
            }
        }
    }
}
