//! All probes of the node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polylet_model::probe::ProbeKind::{self, Liveness, Readiness, Startup};
use proptest::prelude::*;

use super::Engine;
use crate::core::tests::{at, id_of, timing};
use crate::core::types::*;

fn pod(kinds: &[ProbeKind]) -> PodProbes {
    let probes = kinds.iter().map(|kind| {
        Arc::new(Probe {
            part: "spec.containers{main}".into(),
            kind: *kind,
            ask: Ask::Tcp {
                host: None,
                port: 80,
            },
            timing: timing(0, 10, 1, 1),
            timeout: Duration::from_secs(1),
        })
    });
    PodProbes {
        namespace: "default".into(),
        name: "web".into(),
        deleting: false,
        containers: vec![ContainerProbes {
            name: "main".into(),
            probes: probes.collect(),
        }],
    }
}

fn observed(containers: &[(&str, bool)]) -> Option<Observed> {
    let containers = containers.iter().map(|(id, running)| ObservedContainer {
        id: (*id).into(),
        name: "main".to_owned(),
        attempt: 0,
        running: *running,
        started_at: Some(at(0)),
    });
    Some(Observed {
        host: "10.0.0.1".into(),
        containers: containers.collect(),
    })
}

fn kinds(jobs: &[Job]) -> Vec<ProbeKind> {
    jobs.iter().map(|job| job.id.kind).collect()
}

#[test]
fn nothing_is_probed_before_the_container_runs_and_the_pod_is_known() {
    let mut engine = Engine::default();
    engine.observed(&"pod".into(), observed(&[("a", true)]), at(0));
    assert_eq!(engine.next_due(), None);
    engine.pod(&"pod".into(), Some(pod(&[Readiness])), at(5));
    assert_eq!(engine.next_due(), Some(at(5)));
    engine.observed(&"pod".into(), observed(&[("a", false)]), at(6));
    assert_eq!(engine.next_due(), None);
}

#[test]
fn the_startup_probe_holds_the_others_back() {
    let mut engine = Engine::default();
    engine.pod(
        &"pod".into(),
        Some(pod(&[Startup, Liveness, Readiness])),
        at(0),
    );
    engine.observed(&"pod".into(), observed(&[("a", true)]), at(0));
    let jobs = engine.due(at(20_000));
    assert_eq!(kinds(&jobs), [Startup]);
    assert!(jobs[0].awaited);
    engine.finished(
        &jobs[0].id,
        jobs[0].serial,
        Observation::Success,
        at(20_000),
    );
    assert_eq!(kinds(&engine.due(at(20_000))), [Readiness]);
    assert_eq!(kinds(&engine.due(at(30_000))), [Liveness]);
}

#[test]
fn a_result_for_a_container_that_is_gone_is_dropped() {
    let mut engine = Engine::default();
    engine.pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
    engine.observed(&"pod".into(), observed(&[("a", true)]), at(0));
    let job = engine.due(at(0)).remove(0);
    engine.observed(&"pod".into(), observed(&[("b", true), ("a", false)]), at(1));
    assert_eq!(
        engine.finished(&job.id, job.serial, Observation::Success, at(2)),
        None
    );
    assert_eq!(engine.due(at(2))[0].id.container.as_str(), "b");
}

#[test]
fn a_pod_that_is_gone_keeps_only_readiness() {
    for deleting in [false, true] {
        let mut engine = Engine::default();
        engine.pod(&"pod".into(), Some(pod(&[Liveness, Readiness])), at(0));
        engine.observed(&"pod".into(), observed(&[("a", true)]), at(0));
        let leaving = deleting.then(|| PodProbes {
            deleting,
            ..pod(&[Liveness, Readiness])
        });
        engine.pod(&"pod".into(), leaving, at(1));
        assert_eq!(kinds(&engine.due(at(60_000))), [Readiness]);
        engine.observed(&"pod".into(), None, at(2));
        assert_eq!(engine.next_due(), None);
    }
}

#[test]
fn verdicts_go_when_the_runtime_no_longer_lists_the_container() {
    let (here, gone) = (id_of("a", Readiness), id_of("b", Readiness));
    let kept = BTreeMap::from([
        (here.clone(), Outcome::Success),
        (gone.clone(), Outcome::Success),
    ]);
    let mut engine = Engine::new(kept);
    // Before all has been heard, absence means nothing.
    assert_eq!(
        engine.observed(&"pod".into(), observed(&[("a", true)]), at(0)),
        []
    );
    assert_eq!(engine.observed_all(), [gone]);
    assert_eq!(
        engine.observed(&"pod".into(), observed(&[("a", false)]), at(1)),
        []
    );
    assert_eq!(engine.observed(&"pod".into(), None, at(2)), [here]);
}

#[test]
fn a_restart_asks_nothing_at_once_of_containers_that_have_verdicts() {
    let kept = BTreeMap::from([
        (id_of("a", Startup), Outcome::Success),
        (id_of("a", Readiness), Outcome::Success),
    ]);
    let mut engine = Engine::new(kept);
    engine.observed(&"pod".into(), observed(&[("a", true)]), at(100_000));
    engine.pod(
        &"pod".into(),
        Some(pod(&[Startup, Liveness, Readiness])),
        at(100_000),
    );
    assert_eq!(engine.due(at(100_000)), []);
    let jobs = engine.due(at(110_000));
    assert_eq!(jobs.len(), 2);
    assert!(
        jobs.iter()
            .all(|job| job.id.kind != Startup && !job.awaited)
    );
}

#[test]
fn an_init_container_of_an_earlier_attempt_is_not_probed() {
    let mut engine = Engine::default();
    engine.pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
    engine.observed(
        &"pod".into(),
        observed(&[("new", false), ("old", true)]),
        at(0),
    );
    assert_eq!(engine.next_due(), None);
}

proptest! {
    /// Pods and containers come from two streams, in any order.
    #[test]
    fn the_order_of_inputs_does_not_matter(order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle()) {
        let due = |order: &[usize]| {
            let mut engine = Engine::default();
            for step in order {
                let uid = format!("pod{}", step % 6).as_str().into();
                match step / 6 {
                    0 => engine.pod(&uid, Some(pod(&[Startup, Liveness, Readiness])), at(0)),
                    _ => drop(engine.observed(&uid, observed(&[("a", true)]), at(0))),
                }
            }
            let mut jobs: Vec<_> = engine.due(at(60_000)).into_iter().map(|job| job.id).collect();
            jobs.sort();
            jobs
        };
        let sorted: Vec<usize> = (0..12).collect();
        prop_assert_eq!(due(&order), due(&sorted));
    }
}
