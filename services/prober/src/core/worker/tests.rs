//! One probe against upstream's rules.

use std::time::Duration;

use jiff::Timestamp;
use polylet_model::probe::ProbeKind;
use proptest::prelude::*;

use super::Worker;
use crate::core::tests::{at, failure, timing};
use crate::core::types::{Observation, Outcome};

fn ms_of(at_: Timestamp) -> i64 {
    at_.as_millisecond() - at(0).as_millisecond()
}

/// Runs a worker against a container: each attempt takes no time. Gives when it was asked, and the
/// verdicts with their times.
fn run(
    worker: &mut Worker,
    until: u64,
    say: impl Fn(u64) -> Observation,
) -> (Vec<i64>, Vec<(i64, Outcome)>) {
    let (mut asked, mut verdicts) = (Vec::new(), Vec::new());
    while let Some(due) = worker.due().filter(|due| *due <= at(until)) {
        worker.begin(due);
        asked.push(ms_of(due));
        let judged = worker.observe(say(u64::try_from(ms_of(due)).unwrap()), due);
        verdicts.extend(judged.map(|judged| (ms_of(due), judged.outcome)));
    }
    (asked, verdicts)
}

#[test]
fn the_first_readiness_probe_comes_with_the_initial_delay() {
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
fn readiness_is_retried_soon_before_its_first_success_and_then_in_its_phase() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 10, 1, 3),
        at(0),
        None,
        1234,
        at(0),
    );
    let (asked, verdicts) = run(&mut worker, 50_000, |ms| {
        if ms < 600 {
            failure()
        } else {
            Observation::Success
        }
    });
    assert_eq!(asked[..6], [0, 50, 150, 350, 750, 1234]);
    assert_eq!(asked[6..], [11_234, 21_234, 31_234, 41_234]);
    assert_eq!(verdicts, [(750, Outcome::Success)]);
}

#[test]
fn early_retries_never_make_a_failure() {
    // A readiness probe that never succeeds is told once, by its period, whatever is retried: the
    // container may have been found ready by the agent that had this node before.
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 1, 1, 2),
        at(0),
        None,
        0,
        at(0),
    );
    let (asked, verdicts) = run(&mut worker, 10_000, |_| failure());
    assert_eq!(verdicts, [(1000, Outcome::Failure)]);
    assert_eq!(asked[..7], [0, 50, 150, 350, 750, 1000, 2000]);
}

#[test]
fn readiness_flips_after_its_thresholds() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 1, 2, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let say = |ms| {
        if (5500..9500).contains(&ms) {
            failure()
        } else {
            Observation::Success
        }
    };
    let (_, verdicts) = run(&mut worker, 20_000, say);
    assert_eq!(
        verdicts,
        [
            (1000, Outcome::Success),
            (8000, Outcome::Failure),
            (11_000, Outcome::Success)
        ]
    );
}

#[test]
fn liveness_fails_once_and_holds() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 10, 1, 3),
        at(0),
        None,
        4000,
        at(0),
    );
    let (asked, verdicts) = run(&mut worker, 100_000, |ms| {
        if ms > 20_000 {
            failure()
        } else {
            Observation::Success
        }
    });
    assert_eq!(asked, [4000, 14_000, 24_000, 34_000, 44_000]);
    assert_eq!(verdicts, [(44_000, Outcome::Failure)]);
    assert_eq!(worker.due(), None);
}

#[test]
fn one_success_between_failures_starts_the_count_again() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let (_, verdicts) = run(&mut worker, 30_000, |ms| {
        if ms % 3000 == 0 {
            Observation::Success
        } else {
            failure()
        }
    });
    assert_eq!(verdicts, []);
}

#[test]
fn startup_counts_failures_by_its_period_alone_and_holds_either_way() {
    let mut worker = Worker::new(
        ProbeKind::Startup,
        timing(0, 5, 1, 3),
        at(0),
        None,
        77,
        at(20),
    );
    let (asked, verdicts) = run(&mut worker, 60_000, |_| failure());
    assert_eq!(
        (asked, verdicts),
        (vec![20, 5020, 10_020], vec![(10_020, Outcome::Failure)])
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
    let (asked, verdicts) = run(&mut worker, 60_000, |_| Observation::Success);
    assert_eq!((asked, verdicts), (vec![20], vec![(20, Outcome::Success)]));
}

#[test]
fn a_probe_that_went_wrong_counts_as_nothing() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    let unknown = || Observation::Unknown("?".to_owned());
    let (_, verdicts) = run(&mut worker, 30_000, |ms| {
        if ms % 2000 == 0 { unknown() } else { failure() }
    });
    // At 1, 3 and 5 s: what went wrong in between neither counts nor ends the run.
    assert_eq!(verdicts, [(5000, Outcome::Failure)]);
}

#[test]
fn an_attempt_longer_than_the_period_drops_ticks() {
    let mut worker = Worker::new(
        ProbeKind::Liveness,
        timing(0, 1, 1, 3),
        at(0),
        None,
        0,
        at(0),
    );
    worker.begin(at(1000));
    worker.observe(failure(), at(4500));
    assert_eq!(worker.due(), Some(at(5000)));
}

#[test]
fn a_kept_verdict_is_neither_told_again_nor_flipped() {
    let mut worker = Worker::new(
        ProbeKind::Readiness,
        timing(0, 10, 1, 3),
        at(0),
        Some(Outcome::Success),
        500,
        at(99_000),
    );
    let (asked, verdicts) = run(&mut worker, 130_000, |_| Observation::Success);
    assert_eq!((asked[0], verdicts), (100_500, vec![]));
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        let worker = Worker::new(
            kind,
            timing(0, 10, 1, 3),
            at(0),
            Some(Outcome::Failure),
            500,
            at(99_000),
        );
        assert_eq!(worker.due(), None, "{kind:?} holds");
    }
}

#[test]
fn a_start_in_the_future_does_not_hold_a_probe_back() {
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
    /// Whatever a container says, and whatever is retried early: a failure is never told sooner
    /// than upstream would, which needs the threshold of failures, a period apart each.
    #[test]
    fn failures_are_never_sooner_than_upstreams(
        kind in prop::sample::select(ProbeKind::ALL.to_vec()),
        period in 1u64..5, failure_threshold in 1u32..4, phase in any::<u64>(),
        says in prop::collection::vec(0u8..4, 1..60),
    ) {
        let mut worker = Worker::new(kind, timing(0, period, 1, failure_threshold), at(0), None, phase, at(0));
        let mut first_failure = None;
        for said in says {
            let Some(due) = worker.due() else { break };
            worker.begin(due);
            let said = match said {
                0 => Observation::Success,
                1 => failure(),
                2 => Observation::Warning(String::new()),
                _ => Observation::Unknown(String::new()),
            };
            match said {
                Observation::Success | Observation::Warning(_) => first_failure = None,
                Observation::Failure(_) => first_failure = first_failure.or(Some(due)),
                Observation::Unknown(_) => {}
            }
            let judged = worker.observe(said, due);
            if judged.is_some_and(|judged| judged.outcome == Outcome::Failure) {
                let Some(first) = first_failure else { return Err(TestCaseError::fail("a failure without one")) };
                let least = Duration::from_secs(period) * (failure_threshold - 1);
                prop_assert!(due >= first + least);
            }
            prop_assert!(worker.due().is_none_or(|next| next > due));
        }
    }
}
