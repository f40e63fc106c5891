use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::layout::{self, Layout};
use super::manifest;
use super::mount_plan::MountPlan;
use super::operation::{Operation, OperationResult};
use super::pod::PodName;
use super::reference_key::{ObjectKind, ReferenceKey};
use super::references::ObjectState;
use super::spec::Allocatable;
use super::state_of_world::{StateOfWorld, SubscriptionChange};
use super::status::VolumePhase;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn key(kind: ObjectKind, name: &str) -> ReferenceKey {
    let namespace = match kind {
        ObjectKind::Claim => "ns",
        _ => "",
    };
    ReferenceKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
        cluster: true,
    }
}

fn declared(volume: Value) -> StateOfWorld {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
        "spec": {"volumes": [volume],
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    let spec = Arc::new(manifest::parse(&json, Allocatable::default()).unwrap());
    let mut state = StateOfWorld::new(Layout::new("/root"), Vec::new());
    let name = PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    };
    state.apply("d", 1, name, spec).unwrap();
    state
}

fn receive(state: &mut StateOfWorld, kind: ObjectKind, name: &str, object: Value) {
    let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
    state.update_object(&key(kind, name), read);
}

fn claim(volume: &str, phase: &str) -> Value {
    json!({"metadata": {"name": "data", "namespace": "ns", "uid": "c1"},
        "spec": {"volumeName": volume}, "status": {"phase": phase}})
}

fn persistent(claim: &str, source: (&str, Value)) -> Value {
    let mut pv = json!({"metadata": {"name": "pv1"},
        "spec": {"claimRef": {"uid": claim}, "accessModes": ["ReadWriteOnce"]}});
    pv["spec"][source.0] = source.1;
    pv
}

fn message(state: &StateOfWorld) -> (VolumePhase, String) {
    let status = state.status(&"u".into(), at(0)).unwrap();
    (status.volumes[0].phase, status.volumes[0].message.clone())
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}})
}

const PREFIX: &str = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC ns/data: ";

#[test]
fn a_volume_waits_until_its_claim_is_bound() {
    let mut state = declared(by_claim());
    assert_eq!(message(&state).0, VolumePhase::Waiting);
    let subscribe = |kind, name| SubscriptionChange::Subscribe(key(kind, name));
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [subscribe(ObjectKind::Claim, "data")]);
    let assert_waits = |state: &StateOfWorld, expected: &str| {
        assert_eq!(
            message(state),
            (VolumePhase::Waiting, format!("{PREFIX}{expected}"))
        );
    };
    state.update_object(&key(ObjectKind::Claim, "data"), ObjectState::Absent);
    assert_waits(
        &state,
        "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found",
    );
    receive(&mut state, ObjectKind::Claim, "data", claim("", "Pending"));
    assert_waits(&state, "PVC is not bound");
    receive(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    // The persistent volume is watched as soon as its name is known.
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [subscribe(ObjectKind::PersistentVolume, "pv1")]);
    let host = || ("hostPath", json!({"path": "/data"}));
    receive(
        &mut state,
        ObjectKind::PersistentVolume,
        "pv1",
        persistent("other", host()),
    );
    assert_waits(
        &state,
        "found PV object pv1 but its pv.Spec.ClaimRef.UID other does not point to claim.UID c1",
    );
    assert!(state.start_operations(at(0)).is_empty());
    receive(
        &mut state,
        ObjectKind::PersistentVolume,
        "pv1",
        persistent("c1", host()),
    );
    let operations = state.start_operations(at(0));
    assert!(
        matches!(&operations[..], [Operation::SetUp(id, plan)]
            if id.name == "v" && matches!(&**plan, MountPlan::HostPath { path, .. } if path == "/data")),
        "{operations:?}"
    );
    for operation in operations {
        let result = Ok(());
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    let status = state.status(&"u".into(), at(0)).unwrap();
    assert_eq!(status.volumes[0].host_path, "/data");
    assert_eq!(status.volumes[0].phase, VolumePhase::Mounted);
    // Deleted while in use: the mount stays.
    let mut leaving = claim("pv1", "Bound");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    receive(&mut state, ObjectKind::Claim, "data", leaving);
    assert!(state.start_operations(at(1)).is_empty());
}

#[test]
fn a_change_of_the_pod_forgets_none_of_its_objects() {
    let spec = |annotation: &str| {
        let field = json!({"path": "a", "fieldRef": {"fieldPath": "metadata.annotations"}});
        let pod = json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u",
                "annotations": {"a": annotation}},
            "spec": {"volumes": [by_claim(), {"name": "d", "downwardAPI": {"items": [field]}}],
                "containers": [{"name": "c", "volumeMounts": [
                    {"name": "v", "mountPath": "/v"}, {"name": "d", "mountPath": "/d"}]}]},
        });
        let json = serde_json::to_vec(&pod).unwrap();
        Arc::new(manifest::parse(&json, Allocatable::default()).unwrap())
    };
    let mut state = declared(by_claim());
    let name = state.pod(&"u".into());
    state.apply("d", 2, name.clone(), spec("1")).unwrap();
    receive(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    let source = persistent("c1", ("hostPath", json!({"path": "/data"})));
    receive(&mut state, ObjectKind::PersistentVolume, "pv1", source);
    let set_up = |state: &mut StateOfWorld| {
        for operation in state.start_operations(at(0)) {
            let result = Ok(());
            state.finish_operation(OperationResult { operation, result }, at(0));
        }
        message(state)
    };
    assert_eq!(set_up(&mut state), (VolumePhase::Mounted, String::new()));
    state.take_subscription_changes();
    state.apply("d", 3, name, spec("2")).unwrap();
    assert_eq!(set_up(&mut state), (VolumePhase::Mounted, String::new()));
    assert_eq!(state.take_subscription_changes(), Default::default());
}

#[test]
fn a_single_pod_volume_waits_for_the_other_pod() {
    let mut state = declared(by_claim());
    let second = PodName {
        uid: "w".into(),
        namespace: "ns".into(),
        name: "q".into(),
    };
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "q", "uid": "w"},
        "spec": {"volumes": [by_claim()],
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    let spec = Arc::new(manifest::parse(&json, Allocatable::default()).unwrap());
    state.apply("d", 2, second, spec).unwrap();
    receive(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    let mut pv = persistent("c1", ("local", json!({"path": "/mnt/disk"})));
    pv["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    receive(&mut state, ObjectKind::PersistentVolume, "pv1", pv);
    let operations = state.start_operations(at(0));
    assert!(
        matches!(&operations[..], [Operation::SetUp(id, _)] if id.uid == "u"),
        "{operations:?}"
    );
    let status = state.status(&"w".into(), at(0)).unwrap();
    let expected = "MountVolume.SetUp failed for volume \"pv1\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    assert_eq!(status.volumes[0].message, expected);
    for operation in operations {
        let result = Ok(());
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    let first = PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    };
    assert!(state.start_operations(at(1)).is_empty());
    state.release("d", 3, first).unwrap();
    let operations = state.start_operations(at(1));
    assert!(
        matches!(&operations[..], [Operation::TearDown(_)]),
        "{operations:?}"
    );
    for operation in operations {
        let result = Ok(());
        state.finish_operation(OperationResult { operation, result }, at(1));
    }
    let operations = state.start_operations(at(1));
    let is_second =
        |operation: &Operation| matches!(operation, Operation::SetUp(id, _) if id.uid == "w");
    assert!(operations.iter().any(is_second), "{operations:?}");
}

#[test]
fn a_local_volume_has_the_name_of_the_persistent_volume() {
    let mut state = declared(by_claim());
    receive(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    let local = ("local", json!({"path": "/mnt/disk"}));
    receive(
        &mut state,
        ObjectKind::PersistentVolume,
        "pv1",
        persistent("c1", local),
    );
    let operations = state.start_operations(at(0));
    let [Operation::SetUp(id, _)] = &operations[..] else {
        panic!("{operations:?}")
    };
    assert_eq!(
        (id.plugin.as_str(), id.name.as_str()),
        (layout::LOCAL, "pv1")
    );
    for operation in operations {
        let result = Ok(());
        state.finish_operation(OperationResult { operation, result }, at(0));
    }
    state.take_changes(at(0));
    let path = "/root/pods/u/volumes/kubernetes.io~local-volume/pv1";
    assert_eq!(
        state.status(&"u".into(), at(0)).unwrap().volumes[0].host_path,
        path
    );
    // Needed after a restart without an API server.
    let stored = state.metadata_to_store(&"u".into()).unwrap().host_paths;
    assert_eq!(stored, BTreeMap::from([("v".to_owned(), path.to_owned())]));
}

#[test]
fn an_ephemeral_claim_must_be_owned_by_the_pod() {
    let mut state =
        declared(json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
    let subscribe = |kind, name| SubscriptionChange::Subscribe(key(kind, name));
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [subscribe(ObjectKind::Claim, "p-v")]);
    let mut ephemeral = claim("pv1", "Bound");
    receive(&mut state, ObjectKind::Claim, "p-v", ephemeral.clone());
    let expected = "PVC ns/p-v was not created for pod ns/p (pod is not owner)";
    assert!(
        message(&state).1.ends_with(expected),
        "{:?}",
        message(&state)
    );
    ephemeral["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
    receive(&mut state, ObjectKind::Claim, "p-v", ephemeral);
    let changes = state.take_subscription_changes().objects;
    assert_eq!(changes, [subscribe(ObjectKind::PersistentVolume, "pv1")]);
}
