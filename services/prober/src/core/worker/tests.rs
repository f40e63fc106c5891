use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;
use proptest::prelude::*;

use super::Worker;
use crate::core::test_support::{at, failure, timing};
use crate::core::types::{ProbeOutcome, ProbeOutput};

fn ms_of(time: Timestamp) -> i64 {
    time.as_millisecond() - at(0).as_millisecond()
}

/// Runs a worker with attempts that take no time. Returns the times of the attempts, and the outcome
/// changes with their times.
fn run(
    worker: &mut Worker,
    until: u64,
    probe: impl Fn(u64) -> ProbeOutput,
) -> (Vec<i64>, Vec<(i64, ProbeOutcome)>) {
    let (mut attempts, mut changes) = (Vec::new(), Vec::new());
    while let Some(due) = worker.due().filter(|due| *due <= at(until)) {
        worker.start_attempt(due);
        attempts.push(ms_of(due));
        let change = worker.complete_attempt(probe(u64::try_from(ms_of(due)).unwrap()), due);
        changes.extend(change.map(|change| (ms_of(due), change.outcome)));
    }
    (attempts, changes)
}

#[test]
fn first_readiness_attempt_is_due_after_the_initial_delay() {
    for (delay, first) in [(0, 100), (3, 3000)] {
        let worker = Worker::new(
            ProbeKind::Readiness,
            timing(delay, 10, 1, 3),
            at(0),
            None,
            7,
            at(100),
        );
        assert_eq!(worker.due(), Some(at(first)), "{delay}");
    }
}

#[test]
fn readiness_is_retried_early_before_the_first_success_and_then_in_phase() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 10, 1, 3),
        at(0),
        None,
        1234,
        at(0),
    );
    let (attempts, changes) = run(&mut worker, 50_000, |ms| {
        if ms < 600 {
            failure()
        } else {
            ProbeOutput::Success
        }
    });
    assert_eq!(attempts[..6], [0, 50, 150, 350, 750, 1234]);
    assert_eq!(attempts[6..], [11_234, 21_234, 31_234, 41_234]);
    assert_eq!(changes, [(750, ProbeOutcome::Success)]);
}

#[test]
fn failed_early_retries_do_not_count() {
    // "Not ready" is published once, after the threshold of ticks: the agent that ran on this node
    // before may have published "ready".
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 1, 1, 2),
        at(0),
        None,
        0,
        at(0),
    );
    let (attempts, changes) = run(&mut worker, 10_000, |_| failure());
    assert_eq!(changes, [(1000, ProbeOutcome::Failure)]);
    assert_eq!(attempts[..7], [0, 50, 150, 350, 750, 1000, 2000]);
}

#[test]
fn readiness_changes_after_its_thresholds() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 1, 2, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let probe = |ms| {
        if (5500..9500).contains(&ms) {
            failure()
        } else {
            ProbeOutput::Success
        }
    };
    let (_, changes) = run(&mut worker, 20_000, probe);
    assert_eq!(
        changes,
        [
            (1000, ProbeOutcome::Success),
            (8000, ProbeOutcome::Failure),
            (11_000, ProbeOutcome::Success)
        ]
    );
}

#[test]
fn liveness_failure_is_final() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 10, 1, 3),
        at(0),
        None,
        4000,
        at(0),
    );
    let (attempts, changes) = run(&mut worker, 100_000, |ms| {
        if ms > 20_000 {
            failure()
        } else {
            ProbeOutput::Success
        }
    });
    assert_eq!(attempts, [4000, 14_000, 24_000, 34_000, 44_000]);
    assert_eq!(changes, [(44_000, ProbeOutcome::Failure)]);
    assert_eq!(worker.due(), None);
}

#[test]
fn success_resets_the_failure_count() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let (_, changes) = run(&mut worker, 30_000, |ms| {
        if ms % 3000 == 0 {
            ProbeOutput::Success
        } else {
            failure()
        }
    });
    assert_eq!(changes, []);
}

#[test]
fn startup_is_not_retried_early_and_either_outcome_is_final() {
    let mut worker = Worker::new(
        ProbeKind::Startup,
        timing(0, 5, 1, 3),
        at(0),
        None,
        77,
        at(20),
    );
    let (attempts, changes) = run(&mut worker, 60_000, |_| failure());
    assert_eq!(
        (attempts, changes),
        (
            vec![20, 5020, 10_020],
            vec![(10_020, ProbeOutcome::Failure)]
        )
    );
    assert_eq!(worker.due(), None);
    let mut worker = Worker::new(
        ProbeKind::Startup,
        timing(0, 5, 1, 3),
        at(0),
        None,
        77,
        at(20),
    );
    let (attempts, changes) = run(&mut worker, 60_000, |_| ProbeOutput::Success);
    assert_eq!(
        (attempts, changes),
        (vec![20], vec![(20, ProbeOutcome::Success)])
    );
}

#[test]
fn unknown_results_do_not_count() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let unknown = || ProbeOutput::Unknown("?".to_owned());
    let (_, changes) = run(&mut worker, 30_000, |ms| {
        if ms % 2000 == 0 { unknown() } else { failure() }
    });
    // Failures at 1, 3 and 5 s: the unknown results between them do not end the run.
    assert_eq!(changes, [(5000, ProbeOutcome::Failure)]);
}

#[test]
fn attempt_longer_than_the_period_skips_ticks() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    worker.start_attempt(at(1000));
    worker.complete_attempt(failure(), at(4500));
    assert_eq!(worker.due(), Some(at(5000)));
}

#[test]
fn restored_outcome_is_not_reported_again() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 10, 1, 3),
        at(0),
        Some(ProbeOutcome::Success),
        500,
        at(99_000),
    );
    let (attempts, changes) = run(&mut worker, 130_000, |_| ProbeOutput::Success);
    assert_eq!((attempts[0], changes), (100_500, vec![]));
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        let worker = Worker::new(
            kind,
            timing(0, 10, 1, 3),
            at(0),
            Some(ProbeOutcome::Failure),
            500,
            at(99_000),
        );
        assert_eq!(worker.due(), None, "{kind:?} is final");
    }
}

#[test]
fn start_time_in_the_future_does_not_delay_the_probe() {
    let worker = Worker::new(
        ProbeKind::Readiness,
        timing(2, 10, 1, 3),
        at(3_600_000),
        None,
        0,
        at(0),
    );
    assert_eq!(worker.due(), Some(at(2000)));
}

proptest! {
    /// A failure needs as many failed attempts as upstream requires, each a period apart, whatever
    /// is retried early.
    #[test]
    fn failure_never_comes_sooner_than_upstream(
        kind in prop::sample::select(ProbeKind::ALL.to_vec()),
        period in 1u64..5, failure_threshold in 1u32..4, phase in any::<u64>(),
        results in prop::collection::vec(0u8..4, 1..60),
    ) {
        let mut worker = Worker::new(kind, timing(0, period, 1, failure_threshold), at(0), None, phase, at(0));
        let mut first_failure = None;
        for result in results {
            let Some(due) = worker.due() else { break };
            worker.start_attempt(due);
            let output = match result {
                0 => ProbeOutput::Success,
                1 => failure(),
                2 => ProbeOutput::Warning(String::new()),
                _ => ProbeOutput::Unknown(String::new()),
            };
            match output {
                ProbeOutput::Success | ProbeOutput::Warning(_) => first_failure = None,
                ProbeOutput::Failure(_) => first_failure = first_failure.or(Some(due)),
                ProbeOutput::Unknown(_) => {}
            }
            let change = worker.complete_attempt(output, due);
            if change.is_some_and(|change| change.outcome == ProbeOutcome::Failure) {
                let Some(first) = first_failure else { return Err(TestCaseError::fail("outcome changed without a failed attempt")) };
                let least = Duration::from_secs(period) * (failure_threshold - 1);
                prop_assert!(due >= first + least);
            }
            prop_assert!(worker.due().is_none_or(|next| next > due));
        }
    }
}
