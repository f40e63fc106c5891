use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TimePoint;

/// Between two lists without events, or while the runtime is unavailable.
const FAST: Duration = Duration::from_secs(1);
/// Between two lists while events arrive: a busy runtime drops some without telling.
const SLOW: Duration = Duration::from_secs(30);
/// The longest time between two lists while nothing happens, which is upstream's for its evented PLEG.
const REST: Duration = Duration::from_secs(300);
/// Lists stay fast for this long after the event stream started.
const TRIAL: Duration = Duration::from_secs(5);
/// Lists become fast for this long after the event stream has missed a change.
const DISTRUST: Duration = Duration::from_secs(60);

/// How often to list everything.
#[derive(Debug, Clone, Default)]
pub(super) struct RelistPeriod {
    events: bool,
    fast_until: Option<Timestamp>,
    /// Slow lists since the last event; each doubles the time to the next.
    at_rest: u32,
}

impl RelistPeriod {
    /// Whether the event stream is active.
    pub(super) fn has_events(&self) -> bool {
        self.events
    }

    /// The event stream has started.
    pub(super) fn on_events_started(&mut self, now: Timestamp) {
        self.events = true;
        self.at_rest = 0;
        self.fast_until = Some(now.plus(TRIAL));
    }

    /// The event stream has ended.
    pub(super) fn on_events_stopped(&mut self) {
        self.events = false;
    }

    /// An event has come; others may have been dropped. Returns when to list at the latest.
    pub(super) fn on_event(&mut self, now: Timestamp) -> Timestamp {
        self.at_rest = 0;
        now.plus(SLOW)
    }

    /// No event has come for a change that a list showed.
    pub(super) fn on_missed_event(&mut self, now: Timestamp) {
        self.at_rest = 0;
        let fast = self.fast_until.is_some_and(|until| now < until);
        // A fast list is often quicker than the event.
        if !fast {
            self.fast_until = Some(now.plus(DISTRUST));
        }
    }

    /// A list has ended `now`: the time of the next one.
    pub(super) fn on_listed(&mut self, succeeded: bool, now: Timestamp) -> Timestamp {
        let next = self.next(succeeded, now);
        if next >= now.plus(SLOW) {
            self.at_rest = self.at_rest.saturating_add(1);
        }
        next
    }

    /// The time of the next list after one that ended `now`.
    pub(super) fn next(&self, succeeded: bool, now: Timestamp) -> Timestamp {
        let fast = self.fast_until.is_some_and(|until| now < until);
        let period = if succeeded && self.events && !fast {
            SLOW.saturating_mul(1 << self.at_rest.min(4)).min(REST)
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

    #[test]
    fn lists_become_rare_at_rest() {
        let mut period = RelistPeriod::default();
        period.on_events_started(at(0));
        let mut now = at(10);
        let mut waits = Vec::new();
        for _ in 0..6 {
            let next = period.on_listed(true, now);
            waits.push(next.duration_since(now).as_secs());
            now = next;
        }
        assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
        assert_eq!(period.on_event(now), now.plus(SLOW));
        assert_eq!(period.on_listed(true, now), now.plus(SLOW));
        period.on_missed_event(now);
        assert_eq!(period.on_listed(true, now), now.plus(FAST));
        now = now.plus(DISTRUST);
        assert_eq!(period.on_listed(true, now), now.plus(SLOW));
    }
}
