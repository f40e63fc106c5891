use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_schedule::TimePoint;

use super::status::PodStatus;

/// Delays in milliseconds between inspections while the runtime still reports a container as running
/// whose process has exited. A runtime notices within tens of milliseconds, so the first delays are
/// short; each later one is about a third of the time elapsed. After the last one, only lists are
/// left to notice.
const DELAYS_MS: [u64; 18] = [
    5, 5, 5, 8, 10, 13, 18, 24, 32, 42, 56, 75, 100, 133, 178, 237, 316, 422,
];

/// Where the runtime sends events, polling starts this late, in case that the event is lost.
const EVENT_GRACE: Duration = Duration::from_secs(1);
/// The delays in seconds after it: a runtime that still reports the container as running has not lost the
/// event, but is slow to notice, and questions make it slower.
const EVENT_DELAYS_S: [u64; 3] = [1, 2, 4];
/// A runtime that reports other ends is busy rather than silent, and one that was just asked about another
/// exit need not be asked about all of them: it is not asked meanwhile, for this long after the exit.
const MAX_EVENT_GRACE: Duration = Duration::from_secs(10);

/// A pod's containers whose process has exited while the runtime still reports them as running.
#[derive(Debug, Default)]
pub(super) struct ExitPoll(BTreeMap<String, Attempts>);

#[derive(Debug)]
struct Attempts {
    count: usize,
    /// The time of the next request.
    due: Timestamp,
    /// Until when events of other ends delay it; `None` where the runtime sends none.
    event_until: Option<Timestamp>,
}

impl Attempts {
    /// The delay after the present attempt; `None` after the last one.
    fn delay(&self) -> Option<Duration> {
        match self.event_until {
            Some(_) => EVENT_DELAYS_S
                .get(self.count)
                .copied()
                .map(Duration::from_secs),
            None => DELAYS_MS
                .get(self.count)
                .copied()
                .map(Duration::from_millis),
        }
    }
}

impl ExitPoll {
    /// Starts polling for a container whose process has exited, at once unless the runtime sends
    /// `events`. False when it is known already.
    pub(super) fn add(
        &mut self,
        status: &PodStatus,
        id: &str,
        events: bool,
        now: Timestamp,
    ) -> bool {
        if !status.is_running(id) || self.0.contains_key(id) {
            return false;
        }
        let attempts = Attempts {
            count: 0,
            due: if events { now.plus(EVENT_GRACE) } else { now },
            event_until: events.then(|| now.plus(MAX_EVENT_GRACE)),
        };
        self.0.insert(id.to_owned(), attempts);
        true
    }

    /// Delays what is due because the runtime has reported the end of any container, or was asked about
    /// the exit of another one, `at`.
    pub(super) fn delay_due(&mut self, at: Timestamp, now: Timestamp) {
        let until = at.plus(EVENT_GRACE);
        for attempts in self.0.values_mut().filter(|one| one.due <= now) {
            if let Some(limit) = attempts.event_until {
                attempts.due = attempts.due.max(until.min(limit));
            }
        }
    }

    /// The containers whose status is due.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let due = self.0.iter().filter(move |(_, one)| one.due <= now);
        due.map(|(id, _)| id.as_str())
    }

    /// When the next status is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.0.values().map(|attempts| attempts.due).min()
    }

    /// Takes the result of an inspection that began at `began` and ended `now`; `is_requested` says
    /// whether it requested the status of an id.
    pub(super) fn on_inspected(
        &mut self,
        status: &PodStatus,
        is_requested: impl Fn(&str) -> bool,
        began: Timestamp,
        now: Timestamp,
    ) {
        self.0.retain(|id, attempts| {
            if !status.is_running(id) {
                return false;
            }
            // Inspections for other reasons in between do not count.
            if began < attempts.due || !is_requested(id) {
                return true;
            }
            let Some(delay) = attempts.delay() else {
                return false;
            };
            attempts.count += 1;
            attempts.due = now.plus(delay);
            true
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use polylet_model::status::ContainerPhase;

    use super::*;
    use crate::core::ContainerStatus;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn status(containers: &[(&str, ContainerPhase)]) -> PodStatus {
        PodStatus {
            containers: containers
                .iter()
                .map(|(id, phase)| ContainerStatus::new(id, *phase))
                .collect(),
            ..Default::default()
        }
    }

    const RUNNING: ContainerPhase = ContainerPhase::Running;
    const EXITED: ContainerPhase = ContainerPhase::Exited;

    // The times of all inspections until polling ends, when an inspection takes no time.
    fn inspections(poll: &mut ExitPoll, status: &PodStatus) -> Vec<i64> {
        let mut times = vec![0];
        loop {
            let last = at(times[times.len() - 1]);
            poll.on_inspected(status, |_| true, last, last);
            match poll.next_due() {
                Some(due) => times.push(due.as_millisecond()),
                None => return times,
            }
        }
    }

    #[test]
    fn delays_grow_until_polling_ends() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        assert!(poll.add(&status, "a", false, at(0)));
        let times = inspections(&mut poll, &status);
        assert_eq!(times[..8], [0, 5, 10, 15, 23, 33, 46, 64]);
        let last = times[times.len() - 1];
        assert!((1500..2000).contains(&last), "{times:?}");
        assert!(times.is_sorted());
        assert!(
            poll.add(&status, "a", false, at(last)),
            "can be added again"
        );
    }

    #[test]
    fn where_events_flow_the_runtime_is_asked_rarely() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        assert!(poll.add(&status, "a", true, at(0)));
        let mut times = Vec::new();
        while let Some(due) = poll.next_due() {
            times.push(due.as_millisecond());
            poll.on_inspected(&status, |_| true, due, due);
        }
        assert_eq!(times, [1000, 2000, 4000, 8000]);
    }

    #[test]
    fn a_busy_runtime_is_not_asked_before_it_is_silent() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        poll.add(&status, "a", true, at(0));
        assert_eq!(poll.next_due(), Some(at(1000)));
        // Not due yet.
        poll.delay_due(at(900), at(950));
        assert_eq!(poll.next_due(), Some(at(1000)));
        poll.delay_due(at(900), at(1000));
        assert_eq!(poll.next_due(), Some(at(1900)));
        poll.delay_due(at(800), at(1900));
        assert_eq!(poll.next_due(), Some(at(1900)), "silent since");
        poll.delay_due(at(9800), at(9900));
        assert_eq!(poll.next_due(), Some(at(10_000)), "not for ever");
        poll.delay_due(at(9999), at(10_000));
        assert_eq!(poll.next_due(), Some(at(10_000)));
        // A runtime without events is asked at once.
        let mut poll = ExitPoll::default();
        poll.add(&status, "a", false, at(0));
        poll.delay_due(at(0), at(0));
        assert_eq!(poll.next_due(), Some(at(0)));
    }

    #[test]
    fn only_running_containers_are_polled() {
        let cases = [
            (vec![("a", RUNNING)], true),
            (vec![("a", EXITED)], false),
            (vec![("a", ContainerPhase::Created)], false),
            (vec![("b", RUNNING)], false),
            (vec![], false),
        ];
        for (containers, expected) in cases {
            let status = status(&containers);
            let mut poll = ExitPoll::default();
            assert_eq!(
                poll.add(&status, "a", false, at(0)),
                expected,
                "{containers:?}"
            );
            assert!(!poll.add(&status, "a", false, at(1)), "added twice");
        }
    }

    #[test]
    fn polling_ends_when_the_runtime_reports_the_exit_or_the_container_is_gone() {
        let both = status(&[("a", RUNNING), ("b", RUNNING)]);
        let mut poll = ExitPoll::default();
        poll.add(&both, "a", false, at(0));
        poll.add(&both, "b", false, at(3));
        poll.on_inspected(&both, |_| true, at(3), at(4));
        assert_eq!(poll.next_due(), Some(at(9)));
        let one = status(&[("a", EXITED), ("b", RUNNING)]);
        poll.on_inspected(&one, |_| true, at(9), at(10));
        assert_eq!(poll.next_due(), Some(at(15)));
        poll.on_inspected(&status(&[]), |_| true, at(15), at(16));
        assert_eq!(poll.next_due(), None);
    }

    #[test]
    fn inspections_for_other_reasons_do_not_count() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        poll.add(&status, "a", false, at(10));
        // Began before the process exited.
        poll.on_inspected(&status, |_| true, at(8), at(12));
        assert_eq!(poll.next_due(), Some(at(10)));
        poll.on_inspected(&status, |_| true, at(12), at(13));
        assert_eq!(poll.next_due(), Some(at(18)));
        for _ in 0..100 {
            poll.on_inspected(&status, |_| true, at(14), at(15));
            assert_eq!(poll.next_due(), Some(at(18)));
        }
    }
}
