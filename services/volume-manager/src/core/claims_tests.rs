use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::layout::Layout;
use super::objects::{ObjectKey, ObjectKind, ObjectState};
use super::plan::Step;
use super::spec::{Allocatable, PodName, SetUp};
use super::state::{Outcome, State};
use super::view::Phase;
use super::{layout, manifest};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn key(kind: ObjectKind, name: &str) -> ObjectKey {
    let namespace = match kind {
        ObjectKind::Claim => "ns",
        _ => "",
    };
    ObjectKey {
        kind,
        namespace: namespace.into(),
        name: name.into(),
        cluster: true,
    }
}

fn declared(volume: Value) -> State {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
        "spec": {"volumes": [volume],
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    let spec = Arc::new(manifest::read(&json, Allocatable::default()).unwrap());
    let mut state = State::new(Layout::new("/root"), Vec::new());
    let name = PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    };
    state.apply("d", 1, name, spec).unwrap();
    state
}

fn tell(state: &mut State, kind: ObjectKind, name: &str, object: Value) {
    let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
    state.object(&key(kind, name), read);
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

fn message(state: &State) -> (Phase, String) {
    let view = state.view("u", at(0)).unwrap();
    (view.volumes[0].phase, view.volumes[0].message.clone())
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}})
}

const FIRST: &str = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC ns/data: ";

#[test]
fn a_claim_waits_until_it_is_bound_and_to_it_alone() {
    let mut state = declared(by_claim());
    assert_eq!(message(&state).0, Phase::Waiting);
    assert_eq!(state.watched(), [key(ObjectKind::Claim, "data")].into());
    let says = |state: &State, why: &str| {
        assert_eq!(message(state), (Phase::Waiting, format!("{FIRST}{why}")));
    };
    state.object(&key(ObjectKind::Claim, "data"), ObjectState::Absent);
    says(
        &state,
        "failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found",
    );
    tell(&mut state, ObjectKind::Claim, "data", claim("", "Pending"));
    says(&state, "PVC is not bound");
    tell(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    // The volume is asked for as soon as its name is known.
    let watched = state.watched();
    assert!(watched.contains(&key(ObjectKind::Persistent, "pv1")));
    let host = || ("hostPath", json!({"path": "/data"}));
    tell(
        &mut state,
        ObjectKind::Persistent,
        "pv1",
        persistent("other", host()),
    );
    says(
        &state,
        "found PV object pv1 but its pv.Spec.ClaimRef.UID other does not point to claim.UID c1",
    );
    assert!(state.next(at(0)).is_empty());
    tell(
        &mut state,
        ObjectKind::Persistent,
        "pv1",
        persistent("c1", host()),
    );
    let steps = state.next(at(0));
    assert!(
        matches!(&steps[..], [Step::SetUp(id, what)]
            if id.name == "v" && matches!(&**what, SetUp::HostPath { path, .. } if path == "/data")),
        "{steps:?}"
    );
    for step in steps {
        let result = Ok(());
        state.finished(Outcome { step, result }, at(0));
    }
    let view = state.view("u", at(0)).unwrap();
    assert_eq!(view.volumes[0].host_path, "/data");
    assert_eq!(view.volumes[0].phase, Phase::Mounted);
    // Deleted under a pod that uses it: what is mounted stays.
    let mut leaving = claim("pv1", "Bound");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    tell(&mut state, ObjectKind::Claim, "data", leaving);
    assert!(state.next(at(1)).is_empty());
}

#[test]
fn what_one_pod_alone_may_have_waits_for_the_other() {
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
    let spec = Arc::new(manifest::read(&json, Allocatable::default()).unwrap());
    state.apply("d", 2, second, spec).unwrap();
    tell(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    let mut pv = persistent("c1", ("local", json!({"path": "/mnt/disk"})));
    pv["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    tell(&mut state, ObjectKind::Persistent, "pv1", pv);
    let steps = state.next(at(0));
    assert!(
        matches!(&steps[..], [Step::SetUp(id, _)] if id.uid == "u"),
        "{steps:?}"
    );
    let view = state.view("w", at(0)).unwrap();
    let why = "MountVolume.SetUp failed for volume \"pv1\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
    assert_eq!(view.volumes[0].message, why);
    for step in steps {
        let result = Ok(());
        state.finished(Outcome { step, result }, at(0));
    }
    let first = PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    };
    assert!(state.next(at(1)).is_empty());
    state.release("d", 3, first).unwrap();
    let steps = state.next(at(1));
    assert!(matches!(&steps[..], [Step::TearDown(_)]), "{steps:?}");
    for step in steps {
        let result = Ok(());
        state.finished(Outcome { step, result }, at(1));
    }
    let steps = state.next(at(1));
    let its = |step: &Step| matches!(step, Step::SetUp(id, _) if id.uid == "w");
    assert!(steps.iter().any(its), "{steps:?}");
}

#[test]
fn a_local_volume_lies_under_its_own_name() {
    let mut state = declared(by_claim());
    tell(&mut state, ObjectKind::Claim, "data", claim("pv1", "Bound"));
    let local = ("local", json!({"path": "/mnt/disk"}));
    tell(
        &mut state,
        ObjectKind::Persistent,
        "pv1",
        persistent("c1", local),
    );
    let steps = state.next(at(0));
    let [Step::SetUp(id, _)] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(
        (id.plugin.as_str(), id.name.as_str()),
        (layout::LOCAL, "pv1")
    );
    for step in steps {
        let result = Ok(());
        state.finished(Outcome { step, result }, at(0));
    }
    state.changes(at(0));
    let path = "/root/pods/u/volumes/kubernetes.io~local-volume/pv1";
    assert_eq!(state.view("u", at(0)).unwrap().volumes[0].host_path, path);
    // Whose it is must be known again after a restart without an API server.
    let noted = state.note("u").unwrap().1;
    assert_eq!(noted, BTreeMap::from([("v".to_owned(), path.to_owned())]));
}

#[test]
fn a_claim_made_for_the_pod_must_be_the_pods() {
    let mut state =
        declared(json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}));
    assert_eq!(state.watched(), [key(ObjectKind::Claim, "p-v")].into());
    let mut made = claim("pv1", "Bound");
    tell(&mut state, ObjectKind::Claim, "p-v", made.clone());
    let why = "PVC ns/p-v was not created for pod ns/p (pod is not owner)";
    assert!(message(&state).1.ends_with(why), "{:?}", message(&state));
    made["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
    tell(&mut state, ObjectKind::Claim, "p-v", made);
    assert!(
        state
            .watched()
            .contains(&key(ObjectKind::Persistent, "pv1"))
    );
}
