use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::layout::{self, Layout};
use super::manifest;
use super::objects::{Object, ObjectKey, ObjectState};
use super::plan::Step;
use super::spec::{Allocatable, PodName, PodSpec};
use super::state::{Found, Outcome, State};
use super::view::Phase;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn name(uid: &str) -> PodName {
    PodName {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("pod-{uid}"),
    }
}

fn spec(map: &str) -> Arc<PodSpec> {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p"},
        "spec": {
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "conf", "configMap": {"name": map}},
                {"name": "host", "hostPath": {"path": "/etc"}},
            ],
            "containers": [{"name": "c", "volumeMounts": [
                {"name": "tmp", "mountPath": "/a"},
                {"name": "conf", "mountPath": "/b"},
                {"name": "host", "mountPath": "/c"},
            ]}],
        },
    });
    let json = serde_json::to_vec(&pod).unwrap();
    Arc::new(manifest::read(&json, Allocatable::default()).unwrap())
}

fn key(map: &str) -> ObjectKey {
    spec(map).objects().into_iter().next().unwrap()
}

fn object(value: &str) -> ObjectState {
    let data = BTreeMap::from([("k".to_owned(), value.as_bytes().to_vec().into())]);
    ObjectState::Present(Arc::new(Object {
        data,
        immutable: false,
        ..Object::default()
    }))
}

fn state(found: Vec<Found>) -> State {
    State::new(Layout::new("/r"), found)
}

/// Performs steps that all succeed until there are none.
fn settle(state: &mut State, now: Timestamp) -> Vec<Step> {
    let mut all = Vec::new();
    loop {
        let steps = state.next(now);
        if steps.is_empty() {
            return all;
        }
        for step in steps {
            all.push(step.clone());
            state.finished(
                Outcome {
                    step,
                    result: Ok(()),
                },
                now,
            );
        }
    }
}

fn phases(state: &State, uid: &str) -> Vec<(String, Phase, String)> {
    let view = state.view(uid, at(0));
    let volumes = view.map(|view| view.volumes).unwrap_or_default();
    volumes
        .into_iter()
        .map(|v| (v.name, v.phase, v.message))
        .collect()
}

fn found(uid: &str) -> Found {
    let slot = |plugin: &str, name: &str| (plugin.to_owned(), name.to_owned());
    Found {
        pod: name(uid),
        volumes: BTreeMap::from([
            (slot(layout::EMPTY_DIR, "tmp"), ready()),
            (slot(layout::CONFIG_MAP, "conf"), ready()),
        ]),
        host_paths: BTreeMap::from([("host".to_owned(), "/etc".to_owned())]),
    }
}

fn ready() -> super::state::FoundVolume {
    super::state::FoundVolume {
        ready: true,
        in_use: None,
    }
}

#[test]
fn a_missing_object_holds_its_volume_alone() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    assert_eq!(state.watched().into_iter().collect::<Vec<_>>(), [key("m")]);
    assert_eq!(settle(&mut state, at(0)).len(), 2);
    let told = phases(&state, "u");
    assert_eq!((told[0].1, told[2].1), (Phase::Mounted, Phase::Mounted));
    assert_eq!(told[1].2, "waiting to hear of configmap \"ns/m\"");
    state.object(&key("m"), ObjectState::Absent);
    assert!(settle(&mut state, at(0)).is_empty());
    let missing = (
        ("conf".into()),
        Phase::Waiting,
        "MountVolume.SetUp failed for volume \"conf\" : configmap \"m\" not found".into(),
    );
    assert_eq!(phases(&state, "u")[1], missing);
    state.object(&key("m"), object("1"));
    assert_eq!(settle(&mut state, at(0)).len(), 1);
    assert_eq!(phases(&state, "u")[1].1, Phase::Mounted);
    // The same again is free; something else is not; and gone again leaves what is there.
    state.object(&key("m"), object("1"));
    assert!(settle(&mut state, at(0)).is_empty());
    state.object(&key("m"), object("2"));
    assert_eq!(settle(&mut state, at(0)).len(), 1);
    state.object(&key("m"), ObjectState::Absent);
    assert!(settle(&mut state, at(0)).is_empty());
    assert_eq!(phases(&state, "u")[1].1, Phase::Mounted);
}

#[test]
fn immutable_objects_are_read_once() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    let object = Object {
        data: BTreeMap::new(),
        immutable: true,
        ..Object::default()
    };
    state.object(&key("m"), ObjectState::Present(Arc::new(object)));
    assert!(state.watched().is_empty());
    state.release("d", 2, name("u")).unwrap();
    settle(&mut state, at(0));
    state.apply("d", 3, name("u"), spec("m")).unwrap();
    assert_eq!(state.watched().len(), 1);
}

#[test]
fn release_takes_all_away_and_forgets() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.object(&key("m"), object("1"));
    settle(&mut state, at(0));
    assert!(state.changes(at(0)).iter().all(|(_, view)| view.is_some()));
    state.release("d", 2, name("u")).unwrap();
    assert!(state.watched().is_empty());
    let steps = state.next(at(0));
    assert!(steps.iter().all(|step| matches!(step, Step::TearDown(_))));
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == Phase::Releasing)
    );
    for step in steps {
        state.finished(
            Outcome {
                step,
                result: Ok(()),
            },
            at(0),
        );
    }
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == Phase::Gone)
    );
    assert_eq!(settle(&mut state, at(0)), [Step::RemovePod("u".into())]);
    assert_eq!(state.changes(at(0)), [("u".to_owned(), None)]);
}

#[test]
fn a_pod_wanted_again_while_it_goes_is_set_up_afresh() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.object(&key("m"), object("1"));
    settle(&mut state, at(0));
    state.release("d", 2, name("u")).unwrap();
    for step in state.next(at(0)) {
        state.finished(
            Outcome {
                step,
                result: Ok(()),
            },
            at(0),
        );
    }
    let removing = state.next(at(0));
    assert_eq!(removing, [Step::RemovePod("u".into())]);
    state.apply("d", 3, name("u"), spec("m")).unwrap();
    state.object(&key("m"), object("1"));
    assert!(
        state.next(at(0)).is_empty(),
        "the directory is being removed"
    );
    state.finished(
        Outcome {
            step: removing[0].clone(),
            result: Ok(()),
        },
        at(0),
    );
    assert_eq!(settle(&mut state, at(0)).len(), 3);
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == Phase::Mounted)
    );
}

#[test]
fn a_restart_shows_what_is_there_and_destroys_nothing_unsaid() {
    let mut state = state(vec![found("u"), found("stray")]);
    let shown = state.changes(at(0));
    assert_eq!(shown.len(), 2);
    for (_, view) in shown {
        let view = view.unwrap();
        assert_eq!(view.volumes.len(), 3);
        assert!(
            view.volumes
                .iter()
                .all(|v| v.phase == Phase::Mounted && !v.host_path.is_empty())
        );
    }
    assert!(settle(&mut state, at(0)).is_empty());
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    // Checked, while being usable all the time.
    assert_eq!(settle(&mut state, at(0)).len(), 2);
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == Phase::Mounted)
    );
    assert!(state.complete("d", 7).is_err());
    assert!(settle(&mut state, at(0)).is_empty());
    state.complete("d", 1).unwrap();
    let steps = settle(&mut state, at(0));
    assert_eq!(steps.len(), 3);
    assert!(steps.contains(&Step::RemovePod("stray".into())));
    assert!(state.view("stray", at(0)).is_none() && state.view("u", at(0)).is_some());
}

#[test]
fn a_failure_is_told_and_tried_again_alone() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    for step in state.next(at(0)) {
        let bad = matches!(&step, Step::SetUp(id, _) if id.name == "tmp");
        let result = if bad { Err("disk full".into()) } else { Ok(()) };
        state.finished(Outcome { step, result }, at(0));
    }
    assert!(state.next(at(0)).is_empty());
    let told = phases(&state, "u");
    assert_eq!(
        told[0],
        (
            "tmp".into(),
            Phase::Failed,
            "MountVolume.SetUp failed for volume \"tmp\" : disk full".into()
        )
    );
    assert_eq!(told[2].1, Phase::Mounted);
    assert!(
        state
            .wake_at()
            .is_some_and(|at_| at_ > at(0) && at_ <= at(1))
    );
    assert_eq!(state.next(at(1)).len(), 1);
}

#[test]
fn since_moves_only_when_something_changes() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.changes(at(0));
    settle(&mut state, at(5));
    let view = state.changes(at(5)).pop().unwrap().1.unwrap();
    assert_eq!(view.volumes[0].since, at(5));
    state.object(&key("m"), object("1"));
    settle(&mut state, at(9));
    let view = state.changes(at(9)).pop().unwrap().1.unwrap();
    assert_eq!(
        (view.volumes[0].since, view.volumes[1].since),
        (at(5), at(9))
    );
}

proptest! {
    #[test]
    fn order_of_inputs_does_not_matter(order in Just([0usize, 1, 2, 3, 4]).prop_shuffle()) {
        let mut state = state(vec![found("a")]);
        for step in order {
            match step {
                0 => { state.apply("d", 1, name("a"), spec("m")).unwrap(); }
                1 => { state.apply("d", 2, name("b"), spec("n")).unwrap(); }
                2 => { state.release("d", 3, name("c")).unwrap(); }
                3 => state.object(&key("m"), object("1")),
                _ => state.object(&key("n"), object("2")),
            }
            settle(&mut state, at(0));
        }
        // The stream repeats what came before anybody referred to it.
        state.object(&key("m"), object("1"));
        state.object(&key("n"), object("2"));
        settle(&mut state, at(0));
        for uid in ["a", "b"] {
            prop_assert!(phases(&state, uid).iter().all(|(_, phase, _)| *phase == Phase::Mounted));
        }
        prop_assert!(state.view("c", at(0)).is_none());
        prop_assert!(state.next(at(0)).is_empty());
    }
}
