//! When pods were removed, so that a pod whose manifest is written again is known to be a new run of
//! it. Streams join successive changes of one pod: a watcher may see neither its removal nor that it
//! was added again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Number of removed pods that are remembered: a watcher that sees a pod again only after so many other
/// removals has missed more than one change.
const MAX_REMOVALS: usize = 100;

/// Removed pods by uid, with the time of the removal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removals {
    removed: BTreeMap<String, Timestamp>,
}

impl Removals {
    /// Restores the removals that an earlier process has persisted.
    pub fn new(removed: BTreeMap<String, Timestamp>) -> Removals {
        Removals { removed }
    }

    /// The removals, to be persisted.
    pub fn all(&self) -> &BTreeMap<String, Timestamp> {
        &self.removed
    }

    /// Records the removal of a pod; `previous` is that before the pod was last added.
    pub fn record(&mut self, uid: &str, previous: Option<Timestamp>, now: Timestamp) {
        // Also after the clock was set back, each removal of a pod is later than the one before.
        let after = previous.map(|at| at.saturating_add(SignedDuration::from_nanos(1)));
        let after = after.and_then(Result::ok).unwrap_or(now);
        self.removed.insert(uid.to_owned(), now.max(after));
        while self.removed.len() > MAX_REMOVALS {
            let oldest = self.removed.iter().min_by_key(|(_, at)| **at);
            let Some(oldest) = oldest.map(|(uid, _)| uid.clone()) else {
                return;
            };
            self.removed.remove(&oldest);
        }
    }

    /// The removal of a pod that is added again, which is not remembered here any longer.
    pub fn take(&mut self, uid: &str) -> Option<Timestamp> {
        self.removed.remove(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn each_removal_of_a_pod_is_later_than_the_one_before() {
        for (previous, now, later) in [
            (None, 5, second(5)),
            (Some(4), 5, second(5)),
            (Some(5), 5, second(5) + SignedDuration::from_nanos(1)),
            (Some(9), 5, second(9) + SignedDuration::from_nanos(1)),
        ] {
            let mut removals = Removals::default();
            removals.record("u1", previous.map(second), second(now));
            assert_eq!(removals.take("u1"), Some(later), "{previous:?} at {now}");
            assert_eq!(removals.take("u1"), None, "{previous:?} at {now}");
        }
    }

    #[test]
    fn oldest_removals_are_forgotten() {
        let mut removals = Removals::default();
        for n in 0..=100 {
            removals.record(&format!("u{n}"), None, second(n));
        }
        assert_eq!(removals.all().len(), MAX_REMOVALS);
        assert_eq!(removals.take("u0"), None);
        assert_eq!(removals.take("u1"), Some(second(1)));
        assert_eq!(removals.take("u100"), Some(second(100)));
    }
}
