use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::actual_state::{ReconstructedPod, ReconstructedVolume};
use super::layout::{self, Layout};
use super::manifest;
use super::operation::{Operation, OperationResult};
use super::pod::{PodMetadata, PodName};
use super::reference_key::ReferenceKey;
use super::references::{ObjectState, ReferencedObject};
use super::spec::{Allocatable, PodVolumeSpec};
use super::state_of_world::{StateOfWorld, SubscriptionChange};
use super::status::VolumePhase;

#[path = "state_of_world_tests/restart.rs"]
mod restart;

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

fn spec(map: &str) -> Arc<PodVolumeSpec> {
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
    Arc::new(manifest::parse(&json, Allocatable::default()).unwrap())
}

fn key(map: &str) -> ReferenceKey {
    spec(map).objects().into_iter().next().unwrap()
}

fn object(value: &str) -> ObjectState {
    let data = BTreeMap::from([("k".to_owned(), value.as_bytes().to_vec().into())]);
    ObjectState::Present(Arc::new(ReferencedObject {
        data,
        immutable: false,
        ..ReferencedObject::default()
    }))
}

fn state(pods: Vec<ReconstructedPod>) -> StateOfWorld {
    StateOfWorld::new(Layout::new("/r"), pods)
}

/// Runs operations, which all succeed, until there are none.
fn run_all(state: &mut StateOfWorld, now: Timestamp) -> Vec<Operation> {
    let mut all = Vec::new();
    loop {
        let operations = state.start_operations(now);
        if operations.is_empty() {
            return all;
        }
        for operation in operations {
            all.push(operation.clone());
            state.finish_operation(
                OperationResult {
                    operation,
                    result: Ok(()),
                },
                now,
            );
        }
    }
}

fn phases(state: &StateOfWorld, uid: &str) -> Vec<(String, VolumePhase, String)> {
    let status = state.status(&uid.into(), at(0));
    let volumes = status.map(|status| status.volumes).unwrap_or_default();
    volumes
        .into_iter()
        .map(|v| (v.name, v.phase, v.message))
        .collect()
}

fn reconstructed(uid: &str) -> ReconstructedPod {
    let key = |plugin: &str, name: &str| (plugin.to_owned(), name.to_owned());
    let ready = || ReconstructedVolume {
        ready: true,
        in_use: None,
    };
    ReconstructedPod {
        metadata: PodMetadata {
            pod: name(uid),
            host_paths: BTreeMap::from([("host".to_owned(), "/etc".to_owned())]),
        },
        volumes: BTreeMap::from([
            (key(layout::EMPTY_DIR, "tmp"), ready()),
            (key(layout::CONFIG_MAP, "conf"), ready()),
        ]),
    }
}

#[test]
fn volumes_that_take_only_local_files_are_imminent() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    let phases = |state: &StateOfWorld| phases(state, "u").into_iter().map(|volume| volume.1);
    let (waiting, imminent) = (VolumePhase::Waiting, VolumePhase::Imminent);
    let found: Vec<_> = phases(&state).collect();
    assert_eq!(
        found,
        [imminent, waiting, waiting],
        "an object and a path of the node may be missing"
    );
    state.update_object(&key("m"), object("1"));
    let operations = state.start_operations(at(0));
    let found: Vec<_> = phases(&state).collect();
    assert_eq!(found, [imminent, imminent, waiting]);
    for operation in operations {
        let result = Err("disk full".to_owned().into());
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    assert!(phases(&state).all(|phase| phase == VolumePhase::Failed));
}

#[test]
fn a_missing_object_delays_only_its_volume() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [SubscriptionChange::Subscribe(key("m"))]);
    assert_eq!(run_all(&mut state, at(0)).len(), 2);
    let statuses = phases(&state, "u");
    assert_eq!(
        (statuses[0].1, statuses[2].1),
        (VolumePhase::Mounted, VolumePhase::Mounted)
    );
    assert_eq!(statuses[1].2, "waiting for configmap \"ns/m\"");
    state.update_object(&key("m"), ObjectState::Absent);
    assert!(run_all(&mut state, at(0)).is_empty());
    let missing = (
        ("conf".into()),
        VolumePhase::Waiting,
        "MountVolume.SetUp failed for volume \"conf\" : configmap \"m\" not found".into(),
    );
    assert_eq!(phases(&state, "u")[1], missing);
    state.update_object(&key("m"), object("1"));
    assert_eq!(run_all(&mut state, at(0)).len(), 1);
    assert_eq!(phases(&state, "u")[1].1, VolumePhase::Mounted);
    // A repeat has no effect, a change has, and a deletion leaves the files.
    state.update_object(&key("m"), object("1"));
    assert!(run_all(&mut state, at(0)).is_empty());
    state.update_object(&key("m"), object("2"));
    assert_eq!(run_all(&mut state, at(0)).len(), 1);
    state.update_object(&key("m"), ObjectState::Absent);
    assert!(run_all(&mut state, at(0)).is_empty());
    assert_eq!(phases(&state, "u")[1].1, VolumePhase::Mounted);
}

#[test]
fn immutable_objects_are_not_watched_once_received() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    let object = ReferencedObject {
        data: BTreeMap::new(),
        immutable: true,
        ..ReferencedObject::default()
    };
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [SubscriptionChange::Subscribe(key("m"))]);
    state.update_object(&key("m"), ObjectState::Present(Arc::new(object)));
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [SubscriptionChange::Unsubscribe(key("m"))]);
    state.release("d", 2, name("u")).unwrap();
    run_all(&mut state, at(0));
    state.take_subscription_changes();
    state.apply("d", 3, name("u"), spec("m")).unwrap();
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [SubscriptionChange::Subscribe(key("m"))]);
}

#[test]
fn release_tears_everything_down() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.update_object(&key("m"), object("1"));
    run_all(&mut state, at(0));
    assert!(
        state
            .take_changes(at(0))
            .iter()
            .all(|(_, status)| status.is_some())
    );
    state.take_subscription_changes();
    state.release("d", 2, name("u")).unwrap();
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [SubscriptionChange::Unsubscribe(key("m"))]);
    let operations = state.start_operations(at(0));
    assert!(
        operations
            .iter()
            .all(|operation| matches!(operation, Operation::TearDown(_)))
    );
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == VolumePhase::Releasing)
    );
    for operation in operations {
        state.finish_operation(
            OperationResult {
                operation,
                result: Ok(()),
            },
            at(0),
        );
    }
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == VolumePhase::Unmounted)
    );
    assert_eq!(
        run_all(&mut state, at(0)),
        [Operation::RemovePodDir("u".into())]
    );
    assert_eq!(state.take_changes(at(0)), [("u".into(), None)]);
}

#[test]
fn a_pod_applied_again_during_tear_down_is_set_up_afterwards() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.update_object(&key("m"), object("1"));
    run_all(&mut state, at(0));
    state.release("d", 2, name("u")).unwrap();
    for operation in state.start_operations(at(0)) {
        state.finish_operation(
            OperationResult {
                operation,
                result: Ok(()),
            },
            at(0),
        );
    }
    let removing = state.start_operations(at(0));
    assert_eq!(removing, [Operation::RemovePodDir("u".into())]);
    state.apply("d", 3, name("u"), spec("m")).unwrap();
    state.update_object(&key("m"), object("1"));
    assert!(
        state.start_operations(at(0)).is_empty(),
        "the directory is being removed"
    );
    state.finish_operation(
        OperationResult {
            operation: removing[0].clone(),
            result: Ok(()),
        },
        at(0),
    );
    assert_eq!(run_all(&mut state, at(0)).len(), 3);
    assert!(
        phases(&state, "u")
            .iter()
            .all(|(_, phase, _)| *phase == VolumePhase::Mounted)
    );
}

#[test]
fn a_failure_is_published_and_retried_alone() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    for operation in state.start_operations(at(0)) {
        let bad = matches!(&operation, Operation::SetUp(id, _) if id.name == "tmp");
        let result = if bad { Err("disk full".into()) } else { Ok(()) };
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    assert!(state.start_operations(at(0)).is_empty());
    let statuses = phases(&state, "u");
    assert_eq!(
        statuses[0],
        (
            "tmp".into(),
            VolumePhase::Failed,
            "MountVolume.SetUp failed for volume \"tmp\" : disk full".into()
        )
    );
    assert_eq!(statuses[2].1, VolumePhase::Mounted);
    assert!(
        state
            .next_retry()
            .is_some_and(|at_| at_ > at(0) && at_ <= at(1))
    );
    assert_eq!(state.start_operations(at(1)).len(), 1);
}

#[test]
fn since_changes_only_with_phase_or_message() {
    let mut state = state(vec![]);
    state.apply("d", 1, name("u"), spec("m")).unwrap();
    state.take_changes(at(0));
    run_all(&mut state, at(5));
    let status = state.take_changes(at(5)).pop().unwrap().1.unwrap();
    assert_eq!(status.volumes[0].since, at(5));
    state.update_object(&key("m"), object("1"));
    run_all(&mut state, at(9));
    let status = state.take_changes(at(9)).pop().unwrap().1.unwrap();
    assert_eq!(
        (status.volumes[0].since, status.volumes[1].since),
        (at(5), at(9))
    );
}

proptest! {
    #[test]
    fn order_of_inputs_does_not_matter(order in Just([0usize, 1, 2, 3, 4]).prop_shuffle()) {
        let mut state = state(vec![reconstructed("a")]);
        for operation in order {
            match operation {
                0 => { state.apply("d", 1, name("a"), spec("m")).unwrap(); }
                1 => { state.apply("d", 2, name("b"), spec("n")).unwrap(); }
                2 => { state.release("d", 3, name("c")).unwrap(); }
                3 => state.update_object(&key("m"), object("1")),
                _ => state.update_object(&key("n"), object("2")),
            }
            run_all(&mut state, at(0));
        }
        // Objects received before a pod referred to them are received again.
        state.update_object(&key("m"), object("1"));
        state.update_object(&key("n"), object("2"));
        run_all(&mut state, at(0));
        for uid in ["a", "b"] {
            prop_assert!(phases(&state, uid).iter().all(|(_, phase, _)| *phase == VolumePhase::Mounted));
        }
        prop_assert!(state.status(&"c".into(), at(0)).is_none());
        prop_assert!(state.start_operations(at(0)).is_empty());
    }
}
