//! When the events of pods that are gone are forgotten.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::{ObjectKey, object_key};

/// The last notices of a pod may come after its removal, and wait in the queue.
const LEAST_DELAY: Duration = Duration::from_secs(30);
/// From the first removal on: what is known is searched once for many of them.
const BATCH_DELAY: Duration = Duration::from_secs(60);

/// Pods that are gone, whose events are not forgotten yet, the oldest first.
#[derive(Default)]
pub(crate) struct RemovedPods(VecDeque<(Duration, ObjectKey)>);

impl RemovedPods {
    pub(crate) fn add(&mut self, uid: &str, now: Duration) {
        self.0.push_back((now, object_key(uid)));
    }

    /// When [`RemovedPods::take_due`] has some.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.0.front().map(|(removed, _)| *removed + BATCH_DELAY)
    }

    /// Pods to be forgotten now.
    pub(crate) fn take_due(&mut self, now: Duration) -> BTreeSet<ObjectKey> {
        if self.due().is_none_or(|due| now < due) {
            return BTreeSet::new();
        }
        let is_due = |(removed, _): &(Duration, _)| *removed + LEAST_DELAY <= now;
        let count = self.0.iter().take_while(|pod| is_due(pod)).count();
        let due = self.0.drain(..count).map(|(_, key)| key).collect();
        if self.0.is_empty() {
            // After many at once it would stay as large.
            self.0 = VecDeque::new();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_pods_are_taken_once_and_together() {
        let at = Duration::from_secs;
        let mut removed = RemovedPods::default();
        assert_eq!(removed.due(), None);
        for second in [0, 20, 40] {
            removed.add(&second.to_string(), at(second));
        }
        assert_eq!(removed.due(), Some(at(60)));
        assert!(removed.take_due(at(59)).is_empty());
        let taken = removed.take_due(at(60));
        assert_eq!(taken, ["0", "20"].map(object_key).into());
        assert_eq!(removed.due(), Some(at(100)));
        assert_eq!(removed.take_due(at(100)).len(), 1);
        assert_eq!(removed.due(), None);
        assert!(removed.take_due(at(200)).is_empty());
    }
}
