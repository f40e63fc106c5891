//! How often pulls may begin: `registryPullQPS` and `registryBurst`.
//!
//! Upstream refuses a pull beyond the limit, which then waits out a back-off of ten seconds and
//! more. Here it waits for its turn: registries see the same limit, and no pod fails by it.

use std::time::Duration;

use jiff::Timestamp;

/// A bucket of turns that fills at an even rate.
#[derive(Clone, Debug)]
pub struct PullRate {
    per_second: f64,
    burst: f64,
    /// Below zero: so many have their turn promised.
    turns: f64,
    at: Timestamp,
}

impl PullRate {
    /// None where there is no limit: a rate of zero.
    pub fn new(per_second: i32, burst: i32, now: Timestamp) -> Option<Self> {
        (per_second > 0).then(|| PullRate {
            per_second: f64::from(per_second),
            burst: f64::from(burst.max(1)),
            turns: f64::from(burst.max(1)),
            at: now,
        })
    }

    /// Takes a turn; how long it is away.
    pub fn take(&mut self, now: Timestamp) -> Duration {
        // A clock that was set back gives nothing and takes nothing.
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        self.at = now;
        self.turns = (self.turns + passed * self.per_second).min(self.burst) - 1.0;
        let missing = (-self.turns).max(0.0);
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_in_turn() {
        let mut rate = PullRate::new(5, 2, at(0)).unwrap();
        let waits: Vec<u128> = (0..4).map(|_| rate.take(at(0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 200, 400]);
        // The two that wait have their turns; after a second there is room again.
        assert_eq!(rate.take(at(1000)).as_millis(), 0);
        assert!(PullRate::new(0, 10, at(0)).is_none());
        assert_eq!(rate.take(at(-5000)).as_millis(), 0);
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit(gaps in prop::collection::vec(0_i64..500, 1..60), rate in 1_i32..20, burst in 1_i32..20) {
            let mut bucket = PullRate::new(rate, burst, at(0)).unwrap();
            let mut now = 0;
            let mut starts = Vec::new();
            for gap in gaps {
                now += gap;
                starts.push(now as f64 / 1e3 + bucket.take(at(now)).as_secs_f64());
            }
            for (n, first) in starts.iter().enumerate() {
                for (m, last) in starts.iter().enumerate().skip(n) {
                    let allowed = f64::from(burst) + (last - first) * f64::from(rate) + 0.01;
                    prop_assert!((m - n + 1) as f64 <= allowed + 1.0);
                }
            }
        }
    }
}
