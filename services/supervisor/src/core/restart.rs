//! When a service that ended is started again.

use std::time::Duration;

/// The pause before the second restart in a row; doubled for each further one.
pub const FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
pub const LONGEST: Duration = Duration::from_secs(10);
/// A process that was up this long starts the count anew.
pub const STEADY: Duration = Duration::from_secs(30);

/// The restarts of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restarts {
    total: u32,
    in_a_row: u32,
}

impl Restarts {
    /// How often the service was started again since the supervisor started.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The process ended after `up`: how long to wait before the next one. The first restart is
    /// immediate; a service that keeps ending is started ever more slowly.
    pub fn ended(&mut self, up: Duration) -> Duration {
        self.in_a_row = if up >= STEADY { 0 } else { self.in_a_row };
        self.total = self.total.saturating_add(1);
        let pause = match self.in_a_row {
            0 => Duration::ZERO,
            // 2^7 times the first pause is above the longest.
            n => (FIRST * 2_u32.pow((n - 1).min(7))).min(LONGEST),
        };
        self.in_a_row = self.in_a_row.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn at_once_then_doubling_up_to_ten_seconds() {
        let mut restarts = Restarts::default();
        let mut next = |up| restarts.ended(up).as_millis();
        let short = Duration::from_secs(1);
        let pauses: Vec<u128> = (0..10).map(|_| next(short)).collect();
        assert_eq!(
            pauses,
            [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        assert_eq!(next(STEADY), 0);
        assert_eq!(next(short), 100);
        assert_eq!(restarts.total(), 12);
    }

    proptest! {
        #[test]
        fn never_longer_than_the_longest(ups in prop::collection::vec(0..60_u64, 0..200)) {
            let mut restarts = Restarts::default();
            let mut before = Duration::ZERO;
            for up in ups {
                let up = Duration::from_secs(up);
                let pause = restarts.ended(up);
                prop_assert!(pause <= LONGEST);
                if up >= STEADY {
                    prop_assert_eq!(pause, Duration::ZERO);
                } else {
                    prop_assert!(pause >= before);
                }
                before = pause;
            }
        }
    }
}
