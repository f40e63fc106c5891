//! When a service that exited is restarted.

use std::time::Duration;

use polylet_schedule::BackoffPolicy;
use serde::{Deserialize, Serialize};

/// The delay before the second consecutive restart, doubled for each further one.
pub const INITIAL_DELAY: Duration = Duration::from_millis(100);
/// The longest delay.
pub const MAX_DELAY: Duration = Duration::from_secs(10);
/// A process that ran this long and exits with zero was asked to: it is restarted at once.
pub const MIN_CLEAN_UPTIME: Duration = Duration::from_secs(1);
/// For each time that a process ran this long, one earlier exit is forgotten: a service that is killed now
/// and then is restarted at once, and one that crashes whenever it has started is not.
pub const FORGET_AFTER: Duration = Duration::from_secs(5);
/// A process that ran this long is stable: all earlier exits are forgotten.
pub const RESET_AFTER: Duration = Duration::from_secs(30);

const BACKOFF: BackoffPolicy = BackoffPolicy::new(INITIAL_DELAY, MAX_DELAY);

/// The restarts of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartBackoff {
    total: u32,
    consecutive: u32,
}

impl RestartBackoff {
    /// Restarts since the supervisor started.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The delay before the restart of a process that ran for `uptime` and exited with zero (`clean`) or
    /// not. The first restart is immediate.
    pub fn next_delay(&mut self, uptime: Duration, clean: bool) -> Duration {
        self.consecutive = if uptime >= RESET_AFTER {
            0
        } else {
            let forgotten = uptime.as_secs() / FORGET_AFTER.as_secs();
            let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
            self.consecutive.saturating_sub(forgotten)
        };
        self.total = self.total.saturating_add(1);
        if clean && uptime >= MIN_CLEAN_UPTIME {
            return Duration::ZERO;
        }
        let delay = BACKOFF.delay(self.consecutive);
        self.consecutive = self.consecutive.saturating_add(1);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delays_double_up_to_ten_seconds() {
        let mut restarts = RestartBackoff::default();
        let mut next = |up| restarts.next_delay(up, false).as_millis();
        let short = Duration::from_secs(1);
        let delays: Vec<u128> = (0..10).map(|_| next(short)).collect();
        assert_eq!(
            delays,
            [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        assert_eq!(next(RESET_AFTER), 0);
        assert_eq!(next(short), 100);
        assert_eq!(restarts.total(), 12);
    }

    #[test]
    fn a_service_that_is_killed_now_and_then_is_restarted_at_once() {
        let mut restarts = RestartBackoff::default();
        for _ in 0..20 {
            assert_eq!(restarts.next_delay(2 * FORGET_AFTER, false), Duration::ZERO);
            let soon = restarts.next_delay(Duration::from_millis(100), false);
            assert_eq!(soon, INITIAL_DELAY);
        }
    }

    #[test]
    fn a_process_that_was_asked_to_exit_does_not_delay_later_restarts() {
        let mut restarts = RestartBackoff::default();
        for _ in 0..3 {
            assert_eq!(restarts.next_delay(MIN_CLEAN_UPTIME, true), Duration::ZERO);
        }
        // One that exits with zero over and over again is delayed.
        let short = MIN_CLEAN_UPTIME / 2;
        assert_eq!(restarts.next_delay(short, true), Duration::ZERO);
        assert_eq!(restarts.next_delay(short, true), INITIAL_DELAY);
        assert_eq!(restarts.total(), 5);
    }

    proptest! {
        #[test]
        fn delays_are_bounded_and_shrink_by_uptime_only(ups in prop::collection::vec(0..60_u64, 0..200)) {
            let mut restarts = RestartBackoff::default();
            let mut before = Duration::ZERO;
            for up in ups {
                let up = Duration::from_secs(up);
                let delay = restarts.next_delay(up, false);
                prop_assert!(delay <= MAX_DELAY);
                if up >= RESET_AFTER {
                    prop_assert_eq!(delay, Duration::ZERO);
                } else if up < FORGET_AFTER {
                    prop_assert!(delay >= before);
                }
                before = delay;
            }
        }
    }
}
