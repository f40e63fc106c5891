//! How long a service account's token is used.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// No token is used for longer without a new one being asked for, however long it lives.
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// When a new one could not be had: the old one is good for as long before the next try.
const AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// The most by which asking again is spread, so that the tokens of a thousand pods do not end
/// together.
const SPREAD: f64 = 10.0;

/// When a token is to be renewed, and when it is no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From then on a new one is asked for.
    pub refresh_at: Timestamp,
    /// From then on it is handed out only while nobody can be asked for another.
    pub valid_until: Timestamp,
}

impl Times {
    /// Of a token that came `now` and lives for `seconds`: by this machine's clock, so that a
    /// server whose clock is another does not make it seem old. `jitter` is between 0 and 1.
    pub fn of(now: Timestamp, seconds: i64, jitter: f64) -> Times {
        let life = SignedDuration::from_secs(seconds.clamp(0, i64::from(u32::MAX)));
        let eighty = (life / 5) * 4;
        // Of a short life, no more than a tenth of it.
        let most = SPREAD.min(life.as_secs_f64() / 10.0);
        let spread = SignedDuration::from_millis((most * 1000.0 * jitter.clamp(0.0, 1.0)) as i64);
        Times {
            refresh_at: later(now, eighty.min(LONGEST) - spread),
            valid_until: later(now, life),
        }
    }

    /// A new one was asked for in vain.
    pub fn failed(&mut self, now: Timestamp) {
        let again = later(now, AGAIN);
        self.refresh_at = if self.is_valid(now) {
            again.min(self.valid_until).max(self.refresh_at)
        } else {
            again
        };
    }

    /// It is good without asking anyone.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.refresh_at && self.is_valid(now)
    }

    /// Its life has not ended.
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.valid_until
    }
}

fn later(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn at_four_fifths_of_its_life_and_at_most_a_day() {
        for (life, refresh) in [(3600, 2880), (600, 480), (86_400 * 30, 86_400), (0, 0)] {
            let times = Times::of(NOW, life, 0.0);
            let after = times.refresh_at.duration_since(NOW).as_secs();
            assert_eq!(after, refresh, "{life}");
        }
    }

    #[test]
    fn an_old_one_stands_while_it_is_valid() {
        let mut times = Times::of(NOW, 600, 0.0);
        let at = |seconds| later(NOW, SignedDuration::from_secs(seconds));
        assert!(times.is_fresh(at(479)) && !times.is_fresh(at(480)));
        times.failed(at(480));
        assert!(times.is_fresh(at(509)) && !times.is_fresh(at(510)));
        times.failed(at(590));
        assert_eq!(times.refresh_at, at(600));
        assert!(!times.is_fresh(at(600)) && !times.is_valid(at(600)));
        // One that has ended is never fresh, and is asked for again after a while.
        times.failed(at(700));
        assert_eq!(times.refresh_at, at(730));
        assert!(!times.is_fresh(at(701)));
    }

    proptest! {
        #[test]
        fn asked_for_again_within_its_life(life in 600i64..100_000_000, jitter in 0.0f64..1.0) {
            let times = Times::of(NOW, life, jitter);
            let refresh = times.refresh_at.duration_since(NOW).as_secs_f64();
            let life = life as f64;
            prop_assert!(refresh >= (life * 0.8).min(86_400.0) - 10.001);
            prop_assert!(refresh <= (life * 0.8 + 0.001).min(86_400.0));
        }
    }
}
