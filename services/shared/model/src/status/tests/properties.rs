use proptest::prelude::*;

use super::*;

fn spec() -> impl Strategy<Value = Value> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let probes = (any::<bool>(), any::<bool>());
    (policy, any::<bool>(), any::<bool>(), probes, any::<bool>()).prop_map(|(policy, init, side, (startup, ready), host)| {
        let mut a = json!({"name": "a"});
        if startup {
            a["startupProbe"] = json!({"exec": {}});
        }
        if ready {
            a["readinessProbe"] = json!({"exec": {}});
        }
        let mut inits = Vec::new();
        if init {
            inits.push(json!({"name": "i"}));
        }
        if side {
            inits.push(json!({"name": "s", "restartPolicy": "Always"}));
        }
        json!({"restartPolicy": policy, "initContainers": inits, "containers": [a, {"name": "b"}], "hostNetwork": host})
    })
}

fn containers() -> impl Strategy<Value = RuntimeContainer> {
    let phase = prop_oneof![
        Just(ContainerPhase::Created),
        Just(ContainerPhase::Running),
        Just(ContainerPhase::Exited),
        Just(ContainerPhase::Unknown),
    ];
    (
        prop_oneof![Just("a"), Just("b"), Just("i"), Just("s")],
        0_u32..3,
        phase,
        0..3,
    )
        .prop_map(|(name, attempt, phase, code)| RuntimeContainer {
            exit_code: code,
            ..container_in_phase(name, attempt, phase)
        })
}

fn fixtures() -> impl Strategy<Value = Fixture> {
    let containers = proptest::collection::vec(containers(), 0..6);
    let result = (
        prop_oneof![Just("a0"), Just("a1"), Just("b0")],
        0_usize..3,
        any::<bool>(),
        20_i64..90,
    );
    let results = proptest::collection::vec(result, 0..5);
    let waiting =
        proptest::collection::btree_set(prop_oneof![Just("a"), Just("b"), Just("i")], 0..3);
    let worker_state = prop_oneof![3 => Just(PodWorkerState::Syncing), 1 => Just(PodWorkerState::Terminating), 1 => Just(PodWorkerState::Terminated)];
    let terminal = proptest::option::weighted(0.2, (any::<bool>(), any::<bool>()));
    let ready = any::<(bool, bool)>();
    (
        spec(),
        containers,
        results,
        waiting,
        worker_state,
        (terminal, ready, any::<bool>()),
    )
        .prop_map(
            |(
                spec,
                mut containers,
                results,
                waiting,
                worker_state,
                (terminal, (sandbox, ready), file),
            )| {
                containers.sort_by(|x, y| (&x.name, y.attempt).cmp(&(&y.name, x.attempt)));
                containers.dedup_by(|x, y| x.id == y.id);
                let mut fixture = fixture_from_source(spec, if file { "file" } else { "api" });
                if sandbox {
                    fixture = fixture.sandbox();
                    fixture.sandboxes[0].ready = ready;
                }
                for (id, kind, success, since) in results {
                    fixture = fixture.probe_result(id, ProbeKind::ALL[kind], success, since);
                }
                for name in waiting {
                    fixture = fixture.waiting(name, "ErrImagePull");
                }
                let terminal = terminal.map(|(failed, disruption_target)| TerminalDecision {
                    phase: if failed { "Failed" } else { "Succeeded" }.into(),
                    reason: "Evicted".into(),
                    message: "m".into(),
                    decided_at: Some(at(400)),
                    disruption_target,
                });
                Fixture {
                    containers,
                    worker_state,
                    terminal,
                    ..fixture
                }
            },
        )
}

/// The status after a round trip through JSON.
fn round_trip(status: &PodStatus) -> PodStatus {
    serde_json::from_slice(&serde_json::to_vec(status).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn computing_again_changes_nothing(mut fixture in fixtures()) {
        let published = fixture.publish();
        prop_assert_eq!(&fixture.status(), &published);
        prop_assert_eq!(&round_trip(&published), &published);
        fixture.previous = Some(round_trip(&published));
        prop_assert_eq!(&fixture.status(), &published);
    }

    #[test]
    fn the_order_of_inputs_does_not_matter(fixture in fixtures()) {
        let mut reversed = fixture.clone();
        reversed.waiting.reverse();
        reversed.probe_results.reverse();
        prop_assert_eq!(reversed.status(), fixture.status());
    }

    #[test]
    fn the_status_is_stable_after_one_computation(first in fixtures(), second in fixtures()) {
        let mut fixture = Fixture { manifest: first.manifest.clone(), ..second };
        // The worker state never goes back.
        fixture.worker_state = fixture.worker_state.max(first.worker_state);
        fixture.previous = Some(first.status());
        let published = fixture.publish();
        prop_assert_eq!(fixture.status(), published);
    }

    #[test]
    fn invariants(first in fixtures(), second in fixtures()) {
        let before = first.status();
        let mut fixture = Fixture { manifest: first.manifest.clone(), ..second };
        fixture.previous = Some(before.clone());
        let status = fixture.status();
        let phase = status.phase.clone().unwrap();
        if let Some(known) = before.phase.as_deref().filter(|phase| is_terminal(phase)) {
            prop_assert_eq!(&phase, known);
        }
        if is_ready(&status) {
            prop_assert_eq!(condition(&status, condition::CONTAINERS_READY).status.as_str(), "True");
            prop_assert!(status.container_statuses.iter().flatten().all(|c| c.ready));
            prop_assert!(!is_terminal(&phase));
        }
        for c in status.conditions.iter().flatten() {
            prop_assert!(c.last_transition_time.is_some(), "{}", c.type_);
            let old = before.conditions.iter().flatten().find(|old| old.type_ == c.type_);
            if let Some(old) = old {
                prop_assert!(c.last_transition_time >= old.last_transition_time, "{}", c.type_);
                prop_assert!(c.status != old.status || c.last_transition_time == old.last_transition_time);
            }
        }
        for c in status.container_statuses.iter().chain(&status.init_container_statuses).flatten() {
            prop_assert!(!c.ready || c.state.as_ref().is_some_and(|s| s.waiting.is_none()));
            let old = before.container_statuses.iter().chain(&before.init_container_statuses).flatten().find(|o| o.name == c.name);
            prop_assert!(old.is_none_or(|old| old.restart_count <= c.restart_count));
        }
    }
}
