//! Detection of a wall clock that was set back, by the times of the inputs.
//!
//! [`polylet_kit::clock`] wakes sleepers after a step; due times and backoffs that were derived from
//! the earlier time must be derived again as well.

use jiff::{SignedDuration, Timestamp};

/// Two readings of the clock may be out of order by less than this.
const JITTER: SignedDuration = SignedDuration::from_secs(1);

/// The latest time that an input had.
#[derive(Debug, Default)]
pub(crate) struct ClockMonitor {
    latest: Option<Timestamp>,
}

impl ClockMonitor {
    /// Whether the clock was set back since the last call.
    pub(crate) fn was_set_back(&mut self, now: Timestamp) -> bool {
        let back = self
            .latest
            .is_some_and(|latest| latest.duration_since(now) > JITTER);
        self.latest = Some(if back {
            now
        } else {
            self.latest.map_or(now, |latest| latest.max(now))
        });
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_back_is_reported_once() {
        let mut clock = ClockMonitor::default();
        for (seconds, back) in [
            (0, false),
            (7, false),
            (6, false),
            (-3600, true),
            (-3600, false),
            (1, false),
        ] {
            let now = Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            assert_eq!(clock.was_set_back(now), back, "{seconds}");
        }
    }
}
