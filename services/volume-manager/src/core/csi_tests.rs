//! What drivers' volumes wait for, and what their drivers are asked once they are mounted.

mod growth;
mod limits;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::csi::{Registered, attachment_name};
use super::layout::{self, Layout};
use super::manifest;
use super::objects::{ObjectKey, ObjectKind, ObjectState};
use super::place::Place;
use super::plan::{Asked, Step};
use super::spec::{Allocatable, PodName, SetUp};
use super::state::{Outcome, State};
use super::tokens::Issued;
use super::view::Phase;

const DRIVER: &str = "d.example";
const IN_USE: &str = "kubernetes.io/csi/d.example^vol";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn declared(volume: Value, used: &str) -> State {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
        "spec": {"volumes": [volume], "securityContext": {"fsGroup": 9}, "containers": [{"name": "c",
            used: [{"name": "v", "mountPath": "/v", "devicePath": "/dev/v"}]}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    let spec = Arc::new(manifest::read(&json, Allocatable::default()).unwrap());
    let mut state = State::new(Layout::new("/root"), Vec::new()).on("n");
    let name = PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    };
    state.apply("d", 1, name, spec).unwrap();
    state
}

fn tell(state: &mut State, kind: ObjectKind, name: &str, object: Value) {
    let key = ObjectKey {
        kind,
        namespace: match kind {
            ObjectKind::Claim => "ns".into(),
            _ => String::new(),
        },
        name: name.into(),
        cluster: true,
    };
    let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
    state.object(&key, read);
}

fn claim(state: &mut State, status: Value) {
    let mut object = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    for (key, value) in status.as_object().unwrap() {
        object["status"][key] = value.clone();
    }
    tell(state, ObjectKind::Claim, "c", object);
}

fn persistent(state: &mut State, more: Value) {
    let mut object = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c1"},
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": "vol"}}});
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    tell(state, ObjectKind::Persistent, "pv", object);
}

fn driver(state: &mut State, spec: Value) {
    let mut object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false,
        "volumeLifecycleModes": ["Persistent"]}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    tell(state, ObjectKind::CsiDriver, DRIVER, object);
    let registered = Registered {
        name: DRIVER.into(),
        expands: true,
        ..Registered::default()
    };
    state.driver(Path::new("/d"), Some(registered));
}

fn place(state: &mut State, zone: &str, in_use: &[&str]) {
    state.placed(Place {
        labels: BTreeMap::from([("zone".to_owned(), zone.to_owned())]),
        in_use: in_use.iter().map(|name| (*name).to_owned()).collect(),
    });
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})
}

fn message(state: &State) -> String {
    let view = state.view("u", at(0)).unwrap();
    view.volumes[0].message.clone()
}

/// Does what is to be done, all of it well.
fn done(state: &mut State, second: i64) -> Vec<Step> {
    let steps = state.next(at(second));
    for step in steps.clone() {
        let result = Ok(());
        state.finished(Outcome { step, result }, at(second));
    }
    state.changes(at(second));
    steps
}

fn ready(used: &str) -> State {
    let mut state = declared(by_claim(), used);
    claim(&mut state, json!({}));
    persistent(&mut state, json!({}));
    driver(&mut state, json!({}));
    state
}

#[test]
fn an_attached_volume_waits_until_the_node_says_that_it_is_in_use() {
    let mut state = ready("volumeMounts");
    driver(&mut state, json!({"attachRequired": true}));
    // It is told as in use before it is attached, and long before it is mounted.
    assert_eq!(state.in_use(), BTreeSet::from([IN_USE.to_owned()]));
    let attachment = attachment_name("vol", DRIVER, "n");
    let attached = json!({"metadata": {"name": attachment}, "status": {"attached": true},
        "spec": {"attacher": DRIVER, "nodeName": "n", "source": {}}});
    tell(&mut state, ObjectKind::Attachment, &attachment, attached);
    assert!(state.next(at(0)).is_empty());
    assert!(
        message(&state).starts_with("waiting for the Node's status"),
        "{}",
        message(&state)
    );
    place(&mut state, "a", &[IN_USE]);
    assert_eq!(done(&mut state, 0).len(), 1);
    // What the Node says later takes nothing away, nor does the end of the claim.
    place(&mut state, "a", &[]);
    state.object(
        &ObjectKey {
            kind: ObjectKind::Claim,
            namespace: "ns".into(),
            name: "c".into(),
            cluster: true,
        },
        ObjectState::Absent,
    );
    assert!(state.next(at(1)).is_empty());
    assert_eq!(state.in_use(), BTreeSet::from([IN_USE.to_owned()]));
    let name = state.pod("u");
    state.release("d", 2, name).unwrap();
    assert_eq!(state.in_use(), BTreeSet::from([IN_USE.to_owned()]));
    done(&mut state, 2);
    assert!(state.in_use().is_empty());
}

#[test]
fn a_volume_of_other_nodes_is_not_mounted() {
    let mut state = ready("volumeMounts");
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]);
    persistent(
        &mut state,
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}),
    );
    assert!(state.next(at(0)).is_empty(), "the labels are not known");
    place(&mut state, "b", &[]);
    let why =
        "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    assert_eq!(message(&state), why);
    assert!(state.next(at(0)).is_empty());
    place(&mut state, "a", &[]);
    assert_eq!(done(&mut state, 0).len(), 1);
    // A label that changes later disturbs nobody.
    place(&mut state, "b", &[]);
    assert!(state.next(at(1)).is_empty());
    assert_eq!(
        state.view("u", at(1)).unwrap().volumes[0].phase,
        Phase::Mounted
    );
}

#[test]
fn a_volume_is_used_as_what_it_is() {
    let mut state = ready("volumeDevices");
    let wrong = "volume v has volumeMode Filesystem, but is specified in volumeDevices";
    assert!(message(&state).ends_with(wrong), "{}", message(&state));
    persistent(&mut state, json!({"volumeMode": "Block"}));
    driver(&mut state, json!({}));
    let steps = done(&mut state, 0);
    let [Step::SetUp(id, what)] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(id.plugin, layout::CSI_DEVICE);
    assert!(matches!(&**what, SetUp::Csi(csi) if csi.block));
    let view = state.view("u", at(0)).unwrap();
    assert_eq!(
        view.volumes[0].host_path,
        "/root/pods/u/volumeDevices/kubernetes.io~csi/pv"
    );
    let mut state = ready("volumeMounts");
    persistent(&mut state, json!({"volumeMode": "Block"}));
    let wrong = "volume v has volumeMode Block, but is specified in volumeMounts";
    assert!(message(&state).ends_with(wrong), "{}", message(&state));
}

#[test]
fn tokens_are_told_and_publishing_is_asked_for_again() {
    let mut state = ready("volumeMounts");
    let wants = json!([{"audience": "vault", "expirationSeconds": 600}]);
    driver(
        &mut state,
        json!({"tokenRequests": wants, "requiresRepublish": true}),
    );
    assert!(state.next(at(0)).is_empty(), "no token yet");
    let key = state.tokens().into_iter().next().unwrap();
    assert_eq!(
        (key.audience.as_str(), key.expiration_seconds),
        ("vault", 600)
    );
    let issue = |state: &mut State, token: &str| {
        let issued = Issued {
            token: token.as_bytes().to_vec().into(),
            expires_at: at(600),
        };
        state.token(&key, Ok(issued), at(0));
    };
    issue(&mut state, "t1");
    let steps = done(&mut state, 0);
    let [Step::SetUp(_, what)] = &steps[..] else {
        panic!("{steps:?}")
    };
    let SetUp::Csi(csi) = &**what else { panic!() };
    let told: Value = serde_json::from_slice(&csi.tokens.as_ref().unwrap().0).unwrap();
    let wanted = json!({"vault": {"token": "t1", "expirationTimestamp": "1970-01-12T13:56:40Z"}});
    assert_eq!(told, wanted);
    assert!(!format!("{csi:?}").contains("t1\""), "{csi:?}");
    // A new token at once, and without one when it is time.
    assert!(state.next(at(1)).is_empty());
    issue(&mut state, "t2");
    assert!(matches!(
        &done(&mut state, 2)[..],
        [Step::Ask(_, _, Asked::Publish)]
    ));
    assert!(state.next(at(76)).is_empty());
    let wake = state.wake_at().unwrap();
    assert_eq!(wake, at(77));
    assert!(matches!(
        &done(&mut state, 77)[..],
        [Step::Ask(_, _, Asked::Publish)]
    ));
}

#[test]
fn a_volume_for_one_pod_has_its_group_and_is_read_only_as_the_pod_says() {
    let mut state = ready("volumeMounts");
    driver(&mut state, json!({"podInfoOnMount": true}));
    let csi = json!({"driver": DRIVER, "volumeHandle": "vol", "fsType": "ext4", "readOnly": true});
    persistent(
        &mut state,
        json!({"accessModes": ["ReadWriteOncePod"], "csi": csi}),
    );
    let steps = done(&mut state, 0);
    let [Step::SetUp(_, what)] = &steps[..] else {
        panic!("{steps:?}")
    };
    let SetUp::Csi(csi) = &**what else {
        panic!("{what:?}")
    };
    assert_eq!((csi.gid, csi.read_only), (Some(9), false));
    // Whom it is for is no matter of the node's mount.
    assert!(csi.attributes.is_empty() && !csi.pod_info.is_empty());
}

#[test]
fn an_inline_volume_needs_a_driver_that_makes_such() {
    let volume = json!({"name": "v", "csi": {"driver": DRIVER}});
    let mut state = declared(volume, "volumeMounts");
    driver(&mut state, json!({}));
    let said = message(&state);
    let why = "MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
        check volume lifecycle mode: volume mode \"Ephemeral\" \
        not supported by driver d.example (only supports [\"Persistent\"])";
    assert_eq!(said, why);
    driver(&mut state, json!({"volumeLifecycleModes": ["Ephemeral"]}));
    assert_eq!(done(&mut state, 0).len(), 1);
}

#[test]
fn of_two_drivers_of_one_name_the_newer_is_asked() {
    let mut state = ready("volumeMounts");
    let newer = Registered {
        name: DRIVER.into(),
        endpoint: "/newer.sock".into(),
        version: (1, 9, 0),
        ..Registered::default()
    };
    state.driver(Path::new("/a"), Some(newer));
    assert_eq!(state.drivers()[DRIVER].endpoint, Path::new("/newer.sock"));
    state.driver(Path::new("/a"), None);
    assert_eq!(state.drivers()[DRIVER].endpoint, Path::new(""));
}
