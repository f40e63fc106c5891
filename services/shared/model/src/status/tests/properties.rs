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

fn container() -> impl Strategy<Value = Container> {
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
        .prop_map(|(name, attempt, phase, code)| Container {
            exit_code: code,
            ..made(name, attempt, phase)
        })
}

fn facts() -> impl Strategy<Value = World> {
    let containers = proptest::collection::vec(container(), 0..6);
    let verdict = (
        prop_oneof![Just("a0"), Just("a1"), Just("b0")],
        0_usize..3,
        any::<bool>(),
        20_i64..90,
    );
    let verdicts = proptest::collection::vec(verdict, 0..5);
    let notes = proptest::collection::btree_set(prop_oneof![Just("a"), Just("b"), Just("i")], 0..3);
    let stage = prop_oneof![3 => Just(Stage::Syncing), 1 => Just(Stage::Terminating), 1 => Just(Stage::Terminated)];
    let terminal = proptest::option::weighted(0.2, (any::<bool>(), any::<bool>()));
    let ready = any::<(bool, bool)>();
    (
        spec(),
        containers,
        verdicts,
        notes,
        stage,
        (terminal, ready, any::<bool>()),
    )
        .prop_map(
            |(spec, mut containers, verdicts, notes, stage, (terminal, (sandbox, ready), file))| {
                containers.sort_by(|x, y| (&x.name, y.attempt).cmp(&(&y.name, x.attempt)));
                containers.dedup_by(|x, y| x.id == y.id);
                let mut world = sourced(spec, if file { "file" } else { "api" });
                if sandbox {
                    world = world.sandbox();
                    world.sandboxes[0].ready = ready;
                }
                for (id, kind, success, since) in verdicts {
                    world = world.verdict(id, ProbeKind::ALL[kind], success, since);
                }
                for name in notes {
                    world = world.note(name, "ErrImagePull");
                }
                let terminal = terminal.map(|(failed, disruption_target)| Terminal {
                    phase: if failed { "Failed" } else { "Succeeded" }.into(),
                    reason: "Evicted".into(),
                    message: "m".into(),
                    decided_at: Some(at(400)),
                    disruption_target,
                });
                World {
                    containers,
                    stage,
                    terminal,
                    ..world
                }
            },
        )
}

/// What reading the status back from JSON gives.
fn stored(status: &PodStatus) -> PodStatus {
    serde_json::from_slice(&serde_json::to_vec(status).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn telling_it_again_changes_nothing(mut world in facts()) {
        let told = world.tell();
        prop_assert_eq!(&world.status(), &told);
        prop_assert_eq!(&stored(&told), &told);
        world.previous = Some(stored(&told));
        prop_assert_eq!(&world.status(), &told);
    }

    #[test]
    fn the_order_of_notes_and_verdicts_does_not_matter(world in facts()) {
        let mut turned = world.clone();
        turned.notes.reverse();
        turned.verdicts.reverse();
        prop_assert_eq!(turned.status(), world.status());
    }

    #[test]
    fn every_history_settles_at_once(first in facts(), second in facts()) {
        let mut world = World { manifest: first.manifest.clone(), ..second };
        // A pod on its way out never turns back.
        world.stage = world.stage.max(first.stage);
        world.previous = Some(first.status());
        let told = world.tell();
        prop_assert_eq!(world.status(), told);
    }

    #[test]
    fn what_must_always_hold(first in facts(), second in facts()) {
        let before = first.status();
        let mut world = World { manifest: first.manifest.clone(), ..second };
        world.previous = Some(before.clone());
        let status = world.status();
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
