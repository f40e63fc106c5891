//! When which pod wants to be looked at, by a wall clock that may be set back.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// Two readings a moment apart may be out of order by less than this.
const JITTER: SignedDuration = SignedDuration::from_secs(1);

/// Pods by the moment at which they want to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    queue: BTreeSet<(Timestamp, String)>,
    latest: Option<Timestamp>,
}

impl Wakes {
    /// The first moment.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A pod's moment is another one, or none.
    pub(crate) fn set(&mut self, uid: &str, old: Option<Timestamp>, new: Option<Timestamp>) {
        if let Some(old) = old {
            self.queue.remove(&(old, uid.to_owned()));
        }
        self.queue.extend(new.map(|at| (at, uid.to_owned())));
    }

    /// The next pod whose moment has come.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<String> {
        if self.first()? > now {
            return None;
        }
        self.queue.pop_first().map(|(_, uid)| uid)
    }

    /// Whether the clock was set back since it was last read: moments that were worked out from
    /// it would come too late, and are dropped.
    pub(crate) fn clock_went_back(&mut self, now: Timestamp) -> bool {
        let back = self
            .latest
            .is_some_and(|latest| latest.duration_since(now) > JITTER);
        if back {
            self.queue.clear();
        }
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

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn moments_come_in_their_order() {
        let mut wakes = Wakes::default();
        wakes.set("a", None, Some(at(9)));
        wakes.set("b", None, Some(at(5)));
        wakes.set("a", Some(at(9)), Some(at(3)));
        assert_eq!(wakes.first(), Some(at(3)));
        assert_eq!(wakes.pop(at(2)), None);
        assert_eq!(wakes.pop(at(5)).as_deref(), Some("a"));
        assert_eq!(wakes.pop(at(5)).as_deref(), Some("b"));
        assert_eq!(wakes.pop(at(99)), None);
    }

    #[test]
    fn a_clock_that_goes_back_is_noticed_once() {
        let mut wakes = Wakes::default();
        wakes.set("a", None, Some(at(9)));
        for (now, back) in [
            (0, false),
            (7, false),
            (6, false),
            (-3600, true),
            (-3600, false),
            (1, false),
        ] {
            assert_eq!(wakes.clock_went_back(at(now)), back, "{now}");
        }
        assert_eq!(wakes.first(), None);
    }
}
