use std::collections::BTreeMap;
use std::sync::Arc;

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

/// A pod in the runtime whose container `a` runs, with this sandbox and address.
fn at_host(sandbox: &str, host: Option<&str>) -> Option<ObservedPod> {
    let pod = observed(&[("a", true)])?;
    Some(ObservedPod {
        sandbox: Some(sandbox.into()),
        host: host.map(Into::into),
        ..pod
    })
}

#[test]
fn probes_of_the_pods_address_wait_for_it() {
    let exec = ResolvedHandler::Exec {
        command: Vec::new(),
    };
    let tcp = |host: Option<&str>| ResolvedHandler::Tcp {
        host: host.map(Into::into),
        port: 80,
    };
    let http = |host: Option<&str>| {
        ResolvedHandler::Http(HttpGet {
            host: host.map(Into::into),
            port: 80,
            path: "/".to_owned(),
            https: false,
            headers: Vec::new(),
        })
    };
    let grpc = ResolvedHandler::Grpc {
        port: 80,
        service: String::new(),
    };
    for (handler, waits) in [
        (tcp(None), true),
        (tcp(Some("192.0.2.9")), false),
        (http(None), true),
        (http(Some("192.0.2.9")), false),
        (grpc, true),
        (exec, false),
        (ResolvedHandler::Invalid(String::new()), false),
    ] {
        let mut probes = pod(&[Readiness]);
        let probe = Arc::make_mut(&mut probes.containers[0].probes[0]);
        probe.handler = handler.clone();
        let mut engine = Engine::default();
        engine.set_pod(&"pod".into(), Some(probes), at(0));
        engine.set_observed(&"pod".into(), at_host("s", None), at(0));
        let started = engine.start_due(at(1)).len();
        assert_eq!(started, usize::from(!waits), "{handler:?}");
        // At once, and without a failure of the time before.
        engine.set_observed(&"pod".into(), at_host("s", Some("10.0.0.1")), at(2));
        let attempts = engine.start_due(at(2));
        let hosts: Vec<&str> = attempts.iter().map(|attempt| &*attempt.host).collect();
        assert_eq!(hosts, vec!["10.0.0.1"; usize::from(waits)], "{handler:?}");
    }
}

#[test]
fn an_address_is_kept_as_long_as_its_sandbox() {
    for (sandbox, host, expected) in [
        ("s", None, Some("10.0.0.1")),
        ("s", Some("10.0.0.2"), Some("10.0.0.2")),
        ("new", None, None),
        ("new", Some("10.0.0.2"), Some("10.0.0.2")),
    ] {
        let mut engine = Engine::default();
        engine.set_pod(&"pod".into(), Some(pod(&[Readiness])), at(0));
        engine.set_observed(&"pod".into(), at_host("s", Some("10.0.0.1")), at(0));
        engine.set_observed(&"pod".into(), at_host(sandbox, host), at(1));
        let attempts = engine.start_due(at(1));
        let hosts: Vec<&str> = attempts.iter().map(|attempt| &*attempt.host).collect();
        assert_eq!(hosts, Vec::from_iter(expected), "{sandbox} {host:?}");
    }
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
