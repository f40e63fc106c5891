use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TimePoint;

/// Between two lists without events, or while the runtime is unavailable.
const FAST: Duration = Duration::from_secs(1);
/// Between two lists while events arrive.
const SLOW: Duration = Duration::from_secs(30);
/// Lists stay fast for this long after the event stream started.
const TRIAL: Duration = Duration::from_secs(5);
/// Lists become fast for this long after the event stream has missed a change.
const DISTRUST: Duration = Duration::from_secs(60);

/// How often to list everything.
#[derive(Debug, Clone, Default)]
pub(super) struct RelistPeriod {
    events: bool,
    fast_until: Option<Timestamp>,
}

impl RelistPeriod {
    /// Whether the event stream is active.
    pub(super) fn has_events(&self) -> bool {
        self.events
    }

    /// The event stream has started.
    pub(super) fn on_events_started(&mut self, now: Timestamp) {
        self.events = true;
        self.fast_until = Some(now.plus(TRIAL));
    }

    /// The event stream has ended.
    pub(super) fn on_events_stopped(&mut self) {
        self.events = false;
    }

    /// No event has come for a change that a list showed.
    pub(super) fn on_missed_event(&mut self, now: Timestamp) {
        let fast = self.fast_until.is_some_and(|until| now < until);
        // A fast list is often quicker than the event.
        if !fast {
            self.fast_until = Some(now.plus(DISTRUST));
        }
    }

    /// The time of the next list after one that ended `now`.
    pub(super) fn next(&self, succeeded: bool, now: Timestamp) -> Timestamp {
        let fast = self.fast_until.is_some_and(|until| now < until);
        let period = if succeeded && self.events && !fast {
            SLOW
        } else {
            FAST
        };
        now.plus(period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn lists_are_fast_without_events_and_slow_with_them() {
        let mut period = RelistPeriod::default();
        assert_eq!(period.next(true, at(0)), at(1));
        period.on_events_started(at(0));
        assert_eq!(period.next(true, at(0)), at(1), "on trial");
        assert_eq!(period.next(true, at(6)), at(36));
        assert_eq!(period.next(false, at(6)), at(7), "runtime unavailable");
        period.on_missed_event(at(100));
        assert_eq!(period.next(true, at(100)), at(101));
        period.on_missed_event(at(150));
        assert_eq!(
            period.next(true, at(161)),
            at(191),
            "not extended while fast"
        );
        period.on_events_stopped();
        assert_eq!(period.next(true, at(300)), at(301));
    }
}
