use std::time::Duration;

use jiff::Timestamp;

use super::later;

/// Between two lists when nothing else tells of changes, or the runtime is away.
const FAST: Duration = Duration::from_secs(1);
/// Between two lists while events flow.
const SLOW: Duration = Duration::from_secs(30);
/// So long lists stay fast after events began, or were found to have missed something.
const TRIAL: Duration = Duration::from_secs(5);
const DISTRUST: Duration = Duration::from_secs(60);

/// How often to list everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    events: bool,
    fast_until: Option<Timestamp>,
}

impl Pace {
    pub(super) fn events(&self) -> bool {
        self.events
    }

    pub(super) fn events_began(&mut self, now: Timestamp) {
        self.events = true;
        self.fast_until = Some(later(now, TRIAL));
    }

    pub(super) fn events_ended(&mut self) {
        self.events = false;
    }

    /// A list showed a change that no event had told of.
    pub(super) fn surprised(&mut self, now: Timestamp) {
        let trial = self.fast_until.is_some_and(|until| now < until);
        // While everything is listed fast, the list is often quicker than the event.
        if !trial {
            self.fast_until = Some(later(now, DISTRUST));
        }
    }

    /// When to list again after a list that ended now.
    pub(super) fn next(&self, listed: bool, now: Timestamp) -> Timestamp {
        let fast = self.fast_until.is_some_and(|until| now < until);
        let wait = if listed && self.events && !fast {
            SLOW
        } else {
            FAST
        };
        later(now, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn fast_without_events_and_slow_with() {
        let mut pace = Pace::default();
        assert_eq!(pace.next(true, at(0)), at(1));
        pace.events_began(at(0));
        assert_eq!(pace.next(true, at(0)), at(1), "on trial");
        assert_eq!(pace.next(true, at(6)), at(36));
        assert_eq!(pace.next(false, at(6)), at(7), "the runtime is away");
        pace.surprised(at(100));
        assert_eq!(pace.next(true, at(100)), at(101));
        pace.surprised(at(150));
        assert_eq!(pace.next(true, at(161)), at(191), "not renewed while fast");
        pace.events_ended();
        assert_eq!(pace.next(true, at(300)), at(301));
    }
}
