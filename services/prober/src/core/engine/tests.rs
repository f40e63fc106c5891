use std::collections::BTreeMap;

use polylet_model::probe::ProbeKind::{self, Liveness, Readiness, Startup};
use proptest::prelude::*;

use super::Engine;
use crate::core::test_support::{at, observed, pod, probe_id};
use crate::core::types::*;

fn kinds(attempts: &[ProbeAttempt]) -> Vec<ProbeKind> {
    attempts.iter().map(|attempt| attempt.id.kind).collect()
}

#[test]
fn only_running_containers_of_known_pods_are_probed() {
    let mut engine = Engine::default();
    engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0));
    assert_eq!(engine.next_due(), None);
    engine.set_pod(&"pod".into(), Some(pod(&[Readiness])), at(5));
    assert_eq!(engine.next_due(), Some(at(5)));
    engine.set_observed(&"pod".into(), observed(&[("a", false)]), at(6));
    assert_eq!(engine.next_due(), None);
}

/// A pod that is not ready for four seconds: the failure of the first tick is reported, and the success
/// before the second one.
#[test]
fn only_failures_of_ticks_are_reported() {
    let mut engine = Engine::default();
    engine.set_pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
    engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0));
    let mut reported = Vec::new();
    let mut failures = 0;
    while let Some(due) = engine.next_due().filter(|due| *due <= at(20_000)) {
        for attempt in engine.start_due(due) {
            let output = if due > at(4_000) {
                ProbeOutput::Success
            } else {
                failures += 1;
                ProbeOutput::Failure("not yet".to_owned())
            };
            if attempt.is_reported(&output) {
                reported.push((output.as_str(), attempt.counts));
            }
            engine.complete(&attempt.id, attempt.serial, output, due);
        }
    }
    assert!(failures > 5, "{failures}");
    assert_eq!(reported[..2], [("failure", true), ("success", false)]);
}

#[test]
fn other_probes_wait_for_the_startup_probe() {
    let mut engine = Engine::default();
    engine.set_pod(
        &"pod".into(),
        Some(pod(&[Startup, Liveness, Readiness])),
        at(0),
    );
    engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0));
    let attempts = engine.start_due(at(20_000));
    assert_eq!(kinds(&attempts), [Startup]);
    assert!(attempts[0].awaited);
    engine.complete(
        &attempts[0].id,
        attempts[0].serial,
        ProbeOutput::Success,
        at(20_000),
    );
    assert_eq!(kinds(&engine.start_due(at(20_000))), [Readiness]);
    assert_eq!(kinds(&engine.start_due(at(30_000))), [Liveness]);
}

#[test]
fn result_of_a_replaced_container_is_dropped() {
    let mut engine = Engine::default();
    engine.set_pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
    engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0));
    let attempt = engine.start_due(at(0)).remove(0);
    engine.set_observed(&"pod".into(), observed(&[("b", true), ("a", false)]), at(1));
    assert_eq!(
        engine.complete(&attempt.id, attempt.serial, ProbeOutput::Success, at(2)),
        None
    );
    assert_eq!(engine.start_due(at(2))[0].id.container.as_str(), "b");
}

#[test]
fn only_readiness_is_probed_while_a_pod_terminates() {
    for deleting in [false, true] {
        let mut engine = Engine::default();
        engine.set_pod(&"pod".into(), Some(pod(&[Liveness, Readiness])), at(0));
        engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0));
        let terminating = deleting.then(|| PodProbes {
            deleting,
            ..pod(&[Liveness, Readiness])
        });
        engine.set_pod(&"pod".into(), terminating, at(1));
        assert_eq!(kinds(&engine.start_due(at(60_000))), [Readiness]);
        engine.set_observed(&"pod".into(), None, at(2));
        assert_eq!(engine.next_due(), None);
    }
}

#[test]
fn outcomes_are_dropped_when_the_container_is_gone() {
    let (here, gone) = (probe_id("a", Readiness), probe_id("b", Readiness));
    let outcomes = BTreeMap::from([
        (here.clone(), ProbeOutcome::Success),
        (gone.clone(), ProbeOutcome::Success),
    ]);
    let mut engine = Engine::new(outcomes);
    // Before the initial sync, a missing container may still exist.
    assert_eq!(
        engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(0)),
        []
    );
    assert_eq!(engine.on_synced(), [gone]);
    assert_eq!(
        engine.set_observed(&"pod".into(), observed(&[("a", false)]), at(1)),
        []
    );
    assert_eq!(engine.set_observed(&"pod".into(), None, at(2)), [here]);
}

#[test]
fn restored_outcomes_delay_the_first_attempts_after_a_restart() {
    let outcomes = BTreeMap::from([
        (probe_id("a", Startup), ProbeOutcome::Success),
        (probe_id("a", Readiness), ProbeOutcome::Success),
    ]);
    let mut engine = Engine::new(outcomes);
    engine.set_observed(&"pod".into(), observed(&[("a", true)]), at(100_000));
    engine.set_pod(
        &"pod".into(),
        Some(pod(&[Startup, Liveness, Readiness])),
        at(100_000),
    );
    assert_eq!(engine.start_due(at(100_000)), []);
    let attempts = engine.start_due(at(110_000));
    assert_eq!(attempts.len(), 2);
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.id.kind != Startup && !attempt.awaited)
    );
}

#[test]
fn only_the_newest_container_of_a_name_is_probed() {
    let mut engine = Engine::default();
    engine.set_pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
    engine.set_observed(
        &"pod".into(),
        observed(&[("new", false), ("old", true)]),
        at(0),
    );
    assert_eq!(engine.next_due(), None);
}

proptest! {
    /// Pods and containers come from two streams, in any order.
    #[test]
    fn order_of_inputs_does_not_matter(order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle()) {
        let due = |order: &[usize]| {
            let mut engine = Engine::default();
            for step in order {
                let uid = format!("pod{}", step % 6).as_str().into();
                match step / 6 {
                    0 => engine.set_pod(&uid, Some(pod(&[Startup, Liveness, Readiness])), at(0)),
                    _ => drop(engine.set_observed(&uid, observed(&[("a", true)]), at(0))),
                }
            }
            let mut attempts: Vec<_> = engine.start_due(at(60_000)).into_iter().map(|attempt| attempt.id).collect();
            attempts.sort();
            attempts
        };
        let sorted: Vec<usize> = (0..12).collect();
        prop_assert_eq!(due(&order), due(&sorted));
    }
}
