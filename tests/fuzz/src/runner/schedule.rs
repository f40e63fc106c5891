//! Which target runs next, and for how long: the one with the most time left.

use std::time::{Duration, Instant};

use crate::Target;

/// The shortest run: the engine counts seconds.
const MIN_TIME: Duration = Duration::from_secs(1);

/// The time that a target still has to run.
#[derive(Debug)]
pub(super) struct Remaining {
    pub(super) target: &'static Target,
    pub(super) time: Duration,
}

/// Targets that wait for a run, and those that are running.
#[derive(Debug)]
pub(super) struct Schedule {
    waiting: Vec<Remaining>,
    running: Vec<Remaining>,
    /// The longest run. A target that has none runs once, for all of its time.
    slice: Option<Duration>,
    /// When no run may last any longer.
    deadline: Option<Instant>,
}

impl Schedule {
    pub(super) fn new(
        waiting: Vec<Remaining>,
        slice: Option<Duration>,
        deadline: Option<Instant>,
    ) -> Self {
        Schedule {
            waiting,
            running: Vec::new(),
            slice,
            deadline,
        }
    }

    /// The next target, and how long it runs.
    pub(super) fn next(&mut self, now: Instant) -> Option<(&'static Target, Duration)> {
        let left = |deadline: Instant| deadline.saturating_duration_since(now);
        let longest = self.deadline.map_or(Duration::MAX, left);
        let waiting = self.waiting.iter().map(|remaining| remaining.time);
        // The last maximum, that is the first of several targets with the same time.
        let (at, time) = waiting.enumerate().rev().max_by_key(|(_, time)| *time)?;
        let time = time.min(self.slice.unwrap_or(Duration::MAX)).min(longest);
        if time < MIN_TIME {
            return None;
        }
        let remaining = self.waiting.remove(at);
        let target = remaining.target;
        self.running.push(remaining);
        Some((target, time))
    }

    /// A run is over. A target without slices, or with a found input, does not run again.
    pub(super) fn finish(&mut self, name: &str, used: Duration, found: bool) {
        let Some(at) = self.running.iter().position(|one| one.target.name == name) else {
            return;
        };
        let mut remaining = self.running.remove(at);
        remaining.time = remaining.time.saturating_sub(used);
        if self.slice.is_some() && !found {
            self.waiting.push(remaining);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    const SLICE: Duration = Duration::from_secs(300);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn schedule(times: &[u64], slice: Option<Duration>, deadline: Option<Instant>) -> Schedule {
        let remaining = TARGETS.iter().zip(times).map(|(target, time)| Remaining {
            target,
            time: seconds(*time),
        });
        Schedule::new(remaining.collect(), slice, deadline)
    }

    /// The indices and seconds of all runs, one at a time, each of which takes `used` of its time.
    fn runs(
        schedule: &mut Schedule,
        now: Instant,
        used: fn(Duration) -> Duration,
    ) -> Vec<(usize, u64)> {
        let mut runs = Vec::new();
        while let Some((target, time)) = schedule.next(now) {
            let at = TARGETS.iter().position(|one| one.name == target.name);
            runs.push((at.unwrap(), time.as_secs()));
            schedule.finish(target.name, used(time), false);
        }
        runs
    }

    #[test]
    fn without_slices_each_target_runs_once() {
        let now = Instant::now();
        let mut once = schedule(&[600, 600, 600], None, None);
        // Also if it got no processor.
        assert_eq!(
            runs(&mut once, now, |_| Duration::ZERO),
            [(0, 600), (1, 600), (2, 600)]
        );
    }

    #[test]
    fn targets_with_the_least_time_so_far_run_first_in_turns() {
        let now = Instant::now();
        let mut resumed = schedule(&[100, 0, 700], Some(SLICE), None);
        let expected = [(2, 300), (2, 300), (0, 100), (2, 100)];
        assert_eq!(runs(&mut resumed, now, |time| time), expected);
        // One that got half of a processor needs twice as long.
        let mut slow = schedule(&[300], Some(SLICE), None);
        let all = runs(&mut slow, now, |time| time / 2);
        assert_eq!(all.first(), Some(&(0, 300)));
        assert_eq!(all.get(1), Some(&(0, 150)));
    }

    #[test]
    fn runs_end_at_the_deadline() {
        let now = Instant::now();
        let mut resumed = schedule(&[3600, 3600], Some(SLICE), Some(now + seconds(200)));
        assert_eq!(resumed.next(now).map(|(_, time)| time), Some(seconds(200)));
        let late = now + seconds(150);
        assert_eq!(resumed.next(late).map(|(_, time)| time), Some(seconds(50)));
        resumed.finish(TARGETS[0].name, seconds(200), false);
        assert!(resumed.next(now + seconds(200)).is_none());
    }

    #[test]
    fn a_target_with_a_found_input_does_not_run_again() {
        let now = Instant::now();
        let mut resumed = schedule(&[3600], Some(SLICE), None);
        let (target, _) = resumed.next(now).unwrap();
        assert!(
            resumed.next(now).is_none(),
            "no target runs twice at a time"
        );
        resumed.finish(target.name, seconds(1), true);
        assert!(resumed.next(now).is_none());
    }
}
