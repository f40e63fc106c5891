use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::TimePoint;

/// An event that has not come within this time is missed, unless the runtime has sent others since.
const SILENCE: Duration = Duration::from_secs(1);
/// A runtime that sends other events is busy rather than silent, for at most this long.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// How late the runtime's events are, and the pods that a list showed changed before an event of the change
/// had come: it is late, or missed.
#[derive(Debug, Default)]
pub(super) struct LateEvents {
    pods: BTreeSet<PodUid>,
    /// When to decide, and until when at most that is put off.
    due: Option<(Timestamp, Timestamp)>,
    last_event: Option<Timestamp>,
    /// When the last event about the end or removal of something came.
    last_end: Option<Timestamp>,
    /// When the runtime was last asked about an exit whose event had not come.
    exit_asked: Option<Timestamp>,
}

impl LateEvents {
    /// A list that ended `now` showed changes of `pods`.
    pub(super) fn expect(&mut self, pods: BTreeSet<PodUid>, now: Timestamp) {
        if !pods.is_empty() {
            self.pods.extend(pods);
            let due = (now.plus(SILENCE), now.plus(MAX_DELAY));
            self.due.get_or_insert(due);
        }
    }

    /// The runtime has sent an event; `is_end` for that of an end or removal.
    pub(super) fn on_event(&mut self, is_end: bool, now: Timestamp) {
        self.last_event = Some(now);
        if is_end {
            self.last_end = Some(now);
        }
    }

    /// The runtime is asked about an exit whose event has not come.
    pub(super) fn on_exit_asked(&mut self, now: Timestamp) {
        self.exit_asked = Some(now);
    }

    /// When the runtime was last known to be busy with ends: it need not be asked about others at once.
    pub(super) fn busy_at(&self) -> Option<Timestamp> {
        self.last_end.max(self.exit_asked)
    }

    /// The event was about this pod.
    pub(super) fn on_event_of(&mut self, uid: &str) {
        self.pods.remove(uid);
        if self.pods.is_empty() {
            self.due = None;
        }
    }

    /// No event is expected any more.
    pub(super) fn expect_none(&mut self) {
        self.pods.clear();
        self.due = None;
    }

    /// When to call [`LateEvents::have_missed`].
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.map(|(due, _)| due)
    }

    /// Whether an event has been missed; the others are not expected any more then.
    pub(super) fn have_missed(&mut self, now: Timestamp) -> bool {
        let Some((due, limit)) = self.due.filter(|(due, _)| *due <= now) else {
            return false;
        };
        let silent = self.last_event.map_or(due, |last| last.plus(SILENCE));
        let due = silent.min(limit);
        if now < due {
            self.due = Some((due, limit));
            return false;
        }
        self.expect_none();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn expecting(pods: &[&str], millis: i64) -> LateEvents {
        let mut late = LateEvents::default();
        late.expect(pods.iter().map(|pod| (*pod).into()).collect(), at(millis));
        late
    }

    #[test]
    fn silence_is_a_missed_event() {
        let mut late = expecting(&["p"], 0);
        assert!(!late.have_missed(at(999)));
        assert_eq!(late.next_due(), Some(at(1000)));
        assert!(late.have_missed(at(1000)));
        assert_eq!(late.next_due(), None);
        assert!(!late.have_missed(at(5000)), "told once");
        assert_eq!(expecting(&[], 0).next_due(), None);
    }

    #[test]
    fn events_of_all_pods_end_the_wait() {
        let mut late = expecting(&["p", "q"], 0);
        late.on_event_of("p");
        assert_eq!(late.next_due(), Some(at(1000)));
        late.on_event_of("q");
        assert_eq!(late.next_due(), None);
    }

    #[test]
    fn a_busy_runtime_has_more_time_but_not_for_ever() {
        let mut late = expecting(&["p"], 0);
        for millis in (800..9_500).step_by(800) {
            late.on_event(false, at(millis));
            assert!(!late.have_missed(at(millis + 300)), "{millis}");
        }
        late.on_event(false, at(9_900));
        assert!(!late.have_missed(at(9_950)));
        assert_eq!(late.next_due(), Some(at(10_000)));
        assert!(late.have_missed(at(10_000)));
        // Silent since the list.
        let mut late = expecting(&["p"], 5_000);
        late.on_event(false, at(4_900));
        assert!(late.have_missed(at(6_000)));
    }

    #[test]
    fn later_lists_do_not_extend_the_wait() {
        let mut late = expecting(&["p"], 0);
        late.expect(BTreeSet::from(["q".into()]), at(900));
        late.on_event_of("p");
        assert!(late.have_missed(at(1_000)));
    }
}
