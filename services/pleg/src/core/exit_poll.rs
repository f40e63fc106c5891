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

/// A pod's containers whose process has exited while the runtime still reports them as running.
#[derive(Debug, Default)]
pub(super) struct ExitPoll(BTreeMap<String, Attempts>);

#[derive(Debug)]
struct Attempts {
    count: usize,
    /// The time of the next inspection; the first one is due at once.
    due: Timestamp,
}

impl ExitPoll {
    /// Starts polling for a container whose process has exited. False when it is known already.
    pub(super) fn add(&mut self, status: &PodStatus, id: &str, now: Timestamp) -> bool {
        if !status.is_running(id) || self.0.contains_key(id) {
            return false;
        }
        let attempts = Attempts { count: 0, due: now };
        self.0.insert(id.to_owned(), attempts);
        true
    }

    /// Takes the result of an inspection that began at `began` and ended `now`. Returns when to
    /// inspect again, if at all.
    pub(super) fn on_inspected(
        &mut self,
        status: &PodStatus,
        began: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.0.retain(|id, attempts| {
            if !status.is_running(id) {
                return false;
            }
            // Inspections for other reasons in between do not count.
            if began < attempts.due {
                return true;
            }
            let Some(delay) = DELAYS_MS.get(attempts.count) else {
                return false;
            };
            attempts.count += 1;
            attempts.due = now.plus(Duration::from_millis(*delay));
            true
        });
        self.0.values().map(|attempts| attempts.due).min()
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
            match poll.on_inspected(status, last, last) {
                Some(due) => times.push(due.as_millisecond()),
                None => return times,
            }
        }
    }

    #[test]
    fn delays_grow_until_polling_ends() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        assert!(poll.add(&status, "a", at(0)));
        let times = inspections(&mut poll, &status);
        assert_eq!(times[..8], [0, 5, 10, 15, 23, 33, 46, 64]);
        let last = times[times.len() - 1];
        assert!((1500..2000).contains(&last), "{times:?}");
        assert!(times.is_sorted());
        assert!(poll.add(&status, "a", at(last)), "can be added again");
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
            assert_eq!(poll.add(&status, "a", at(0)), expected, "{containers:?}");
            assert!(!poll.add(&status, "a", at(1)), "added twice");
        }
    }

    #[test]
    fn polling_ends_when_the_runtime_reports_the_exit_or_the_container_is_gone() {
        let both = status(&[("a", RUNNING), ("b", RUNNING)]);
        let mut poll = ExitPoll::default();
        poll.add(&both, "a", at(0));
        poll.add(&both, "b", at(3));
        assert_eq!(poll.on_inspected(&both, at(3), at(4)), Some(at(9)));
        let one = status(&[("a", EXITED), ("b", RUNNING)]);
        assert_eq!(poll.on_inspected(&one, at(9), at(10)), Some(at(15)));
        assert_eq!(poll.on_inspected(&status(&[]), at(15), at(16)), None);
    }

    #[test]
    fn inspections_for_other_reasons_do_not_count() {
        let status = status(&[("a", RUNNING)]);
        let mut poll = ExitPoll::default();
        poll.add(&status, "a", at(10));
        // Began before the process exited.
        assert_eq!(poll.on_inspected(&status, at(8), at(12)), Some(at(10)));
        assert_eq!(poll.on_inspected(&status, at(12), at(13)), Some(at(18)));
        for _ in 0..100 {
            assert_eq!(poll.on_inspected(&status, at(14), at(15)), Some(at(18)));
        }
    }
}
