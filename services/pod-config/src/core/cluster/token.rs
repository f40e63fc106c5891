//! Lifetime of service account tokens.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Tokens are refreshed at least this often, whatever their lifetime.
const MAX_REFRESH_INTERVAL: SignedDuration = SignedDuration::from_hours(24);
/// Interval between attempts after a failed refresh.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Upper limit of the jitter that spreads the refreshes of many pods.
const MAX_JITTER_SECONDS: f64 = 10.0;

/// When a token is refreshed, and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLifetime {
    /// From then on a new token is requested.
    pub refresh_at: Timestamp,
    /// From then on the token is issued only while the API server is unavailable.
    pub valid_until: Timestamp,
}

impl TokenLifetime {
    /// Lifetime of a token that was received `now` and is valid for `seconds`, by the local clock:
    /// the server's may differ. `jitter` is between 0 and 1.
    pub fn new(now: Timestamp, seconds: i64, jitter: f64) -> TokenLifetime {
        let validity = SignedDuration::from_secs(seconds.clamp(0, i64::from(u32::MAX)));
        let eighty_percent = (validity / 5) * 4;
        // Not more than a tenth of a short validity.
        let max_jitter = MAX_JITTER_SECONDS.min(validity.as_secs_f64() / 10.0);
        let jitter =
            SignedDuration::from_millis((max_jitter * 1000.0 * jitter.clamp(0.0, 1.0)) as i64);
        TokenLifetime {
            refresh_at: saturating_add(now, eighty_percent.min(MAX_REFRESH_INTERVAL) - jitter),
            valid_until: saturating_add(now, validity),
        }
    }

    /// Handles a failed refresh.
    pub fn handle_refresh_failure(&mut self, now: Timestamp) {
        let retry_at = saturating_add(now, RETRY_INTERVAL);
        self.refresh_at = if self.is_valid(now) {
            retry_at.min(self.valid_until).max(self.refresh_at)
        } else {
            retry_at
        };
    }

    /// Whether the token can be issued without a refresh.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.refresh_at && self.is_valid(now)
    }

    /// Whether the token has not expired.
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.valid_until
    }
}

fn saturating_add(from: Timestamp, by: SignedDuration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn refreshed_at_80_percent_and_at_most_after_a_day() {
        for (life, refresh) in [(3600, 2880), (600, 480), (86_400 * 30, 86_400), (0, 0)] {
            let times = TokenLifetime::new(NOW, life, 0.0);
            let after = times.refresh_at.duration_since(NOW).as_secs();
            assert_eq!(after, refresh, "{life}");
        }
    }

    #[test]
    fn failed_refreshes_are_retried_while_the_token_is_valid() {
        let mut times = TokenLifetime::new(NOW, 600, 0.0);
        let at = |seconds| saturating_add(NOW, SignedDuration::from_secs(seconds));
        assert!(times.is_fresh(at(479)) && !times.is_fresh(at(480)));
        times.handle_refresh_failure(at(480));
        assert!(times.is_fresh(at(509)) && !times.is_fresh(at(510)));
        times.handle_refresh_failure(at(590));
        assert_eq!(times.refresh_at, at(600));
        assert!(!times.is_fresh(at(600)) && !times.is_valid(at(600)));
        // An expired token is never fresh, and is refreshed at intervals.
        times.handle_refresh_failure(at(700));
        assert_eq!(times.refresh_at, at(730));
        assert!(!times.is_fresh(at(701)));
    }

    proptest! {
        #[test]
        fn refreshed_within_its_validity(life in 600i64..100_000_000, jitter in 0.0f64..1.0) {
            let times = TokenLifetime::new(NOW, life, jitter);
            let refresh = times.refresh_at.duration_since(NOW).as_secs_f64();
            let life = life as f64;
            prop_assert!(refresh >= (life * 0.8).min(86_400.0) - 10.001);
            prop_assert!(refresh <= (life * 0.8 + 0.001).min(86_400.0));
        }
    }
}
