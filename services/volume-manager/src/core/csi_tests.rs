//! Prerequisites of CSI volumes, and updates once they are mounted.

mod attach_limits;
mod resize;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::actual_state::{ReconstructedPod, ReconstructedVolume};
use super::csi_volume::{RegisteredDriver, attachment_name};
use super::layout::{self, Layout};
use super::manifest;
use super::mount_plan::MountPlan;
use super::node_info::NodeInfo;
use super::operation::{Operation, OperationResult, VolumeUpdate};
use super::pod::{PodMetadata, PodName};
use super::reference_key::{ObjectKind, ReferenceKey};
use super::references::ObjectState;
use super::spec::Allocatable;
use super::state_of_world::{StateOfWorld, SubscriptionChange};
use super::status::VolumePhase;
use super::tokens::IssuedToken;

const DRIVER: &str = "d.example";
const IN_USE: &str = "kubernetes.io/csi/d.example^vol";
/// The path of the inline volume `v`.
const INLINE: &str = "/root/pods/u/volumes/kubernetes.io~csi/v/mount";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn declared(volume: Value, used: &str) -> StateOfWorld {
    let mut state = StateOfWorld::new(Layout::new("/root"), Vec::new()).with_node_name("n");
    declare(&mut state, volume, used);
    state
}

fn pod_name() -> PodName {
    PodName {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
    }
}

fn declare(state: &mut StateOfWorld, volume: Value, used: &str) {
    let pod = json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
        "spec": {"volumes": [volume], "securityContext": {"fsGroup": 9}, "containers": [{"name": "c",
            used: [{"name": "v", "mountPath": "/v", "devicePath": "/dev/v"}]}]},
    });
    let json = serde_json::to_vec(&pod).unwrap();
    let spec = Arc::new(manifest::parse(&json, Allocatable::default()).unwrap());
    state.apply("d", 1, pod_name(), spec).unwrap();
}

fn receive(state: &mut StateOfWorld, kind: ObjectKind, name: &str, object: Value) {
    let key = ReferenceKey {
        kind,
        namespace: match kind {
            ObjectKind::Claim => "ns".into(),
            _ => String::new(),
        },
        name: name.into(),
        cluster: true,
    };
    let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
    state.update_object(&key, read);
}

fn claim(state: &mut StateOfWorld, status: Value) {
    let mut object = json!({"metadata": {"uid": "c1"}, "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    for (key, value) in status.as_object().unwrap() {
        object["status"][key] = value.clone();
    }
    receive(state, ObjectKind::Claim, "c", object);
}

fn persistent(state: &mut StateOfWorld, more: Value) {
    let mut object = json!({"metadata": {"name": "pv"}, "spec": {"claimRef": {"uid": "c1"},
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DRIVER, "volumeHandle": "vol"}}});
    for (key, value) in more.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    receive(state, ObjectKind::PersistentVolume, "pv", object);
}

fn driver(state: &mut StateOfWorld, spec: Value) {
    let mut object = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false,
        "volumeLifecycleModes": ["Persistent"]}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    receive(state, ObjectKind::CsiDriver, DRIVER, object);
    let registered = RegisteredDriver {
        name: DRIVER.into(),
        expand_volume: true,
        ..RegisteredDriver::default()
    };
    state.set_driver(Path::new("/d"), Some(registered));
}

fn node(state: &mut StateOfWorld, zone: &str, in_use: &[&str]) {
    state.set_node_info(NodeInfo {
        labels: BTreeMap::from([("zone".to_owned(), zone.to_owned())]),
        volumes_in_use: in_use.iter().map(|name| (*name).to_owned()).collect(),
    });
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})
}

fn message(state: &StateOfWorld) -> String {
    let status = state.status(&"u".into(), at(0)).unwrap();
    status.volumes[0].message.clone()
}

/// The attached volumes, as published.
fn in_use(state: &mut StateOfWorld) -> Vec<String> {
    state.refresh_claims();
    state.volumes_in_use().into_iter().collect()
}

/// Runs all operations, which succeed.
fn run_all(state: &mut StateOfWorld, second: i64) -> Vec<Operation> {
    let operations = state.start_operations(at(second));
    for operation in operations.clone() {
        let result = Ok(());
        state.finish_operation(OperationResult { operation, result }, at(second));
    }
    state.take_changes(at(second));
    operations
}

fn ready(used: &str) -> StateOfWorld {
    let mut state = declared(by_claim(), used);
    claim(&mut state, json!({}));
    persistent(&mut state, json!({}));
    driver(&mut state, json!({}));
    state
}

#[test]
fn an_attached_volume_waits_until_the_node_status_lists_it() {
    let mut state = ready("volumeMounts");
    driver(&mut state, json!({"attachRequired": true}));
    // Listed as in use before it is attached.
    assert_eq!(in_use(&mut state), [IN_USE]);
    let attachment = attachment_name("vol", DRIVER, "n");
    let attached = json!({"metadata": {"name": attachment}, "status": {"attached": true},
        "spec": {"attacher": DRIVER, "nodeName": "n", "source": {}}});
    receive(&mut state, ObjectKind::Attachment, &attachment, attached);
    assert!(state.start_operations(at(0)).is_empty());
    assert!(
        message(&state).starts_with("waiting for the Node's status"),
        "{}",
        message(&state)
    );
    node(&mut state, "a", &[IN_USE]);
    assert_eq!(run_all(&mut state, 0).len(), 1);
    // Neither a later Node status nor the deletion of the claim unmounts it.
    node(&mut state, "a", &[]);
    state.update_object(
        &ReferenceKey {
            kind: ObjectKind::Claim,
            namespace: "ns".into(),
            name: "c".into(),
            cluster: true,
        },
        ObjectState::Absent,
    );
    assert!(state.start_operations(at(1)).is_empty());
    assert_eq!(in_use(&mut state), [IN_USE]);
    let name = state.pod(&"u".into());
    state.release("d", 2, name).unwrap();
    assert_eq!(in_use(&mut state), [IN_USE]);
    run_all(&mut state, 2);
    assert!(in_use(&mut state).is_empty());
}

#[test]
fn a_volume_with_affinity_to_other_nodes_is_not_mounted() {
    let mut state = ready("volumeMounts");
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]);
    persistent(
        &mut state,
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}),
    );
    assert!(
        state.start_operations(at(0)).is_empty(),
        "the labels are not known"
    );
    node(&mut state, "b", &[]);
    let expected =
        "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms";
    assert_eq!(message(&state), expected);
    assert!(state.start_operations(at(0)).is_empty());
    node(&mut state, "a", &[]);
    assert_eq!(run_all(&mut state, 0).len(), 1);
    // A later change of labels has no effect.
    node(&mut state, "b", &[]);
    assert!(state.start_operations(at(1)).is_empty());
    assert_eq!(
        state.status(&"u".into(), at(1)).unwrap().volumes[0].phase,
        VolumePhase::Mounted
    );
}

#[test]
fn the_volume_mode_must_match_its_use() {
    let mut state = ready("volumeDevices");
    let error = "volume v has volumeMode Filesystem, but is specified in volumeDevices";
    assert!(message(&state).ends_with(error), "{}", message(&state));
    persistent(&mut state, json!({"volumeMode": "Block"}));
    driver(&mut state, json!({}));
    let operations = run_all(&mut state, 0);
    let [Operation::SetUp(id, plan)] = &operations[..] else {
        panic!("{operations:?}")
    };
    assert_eq!(id.plugin, layout::CSI_DEVICE);
    assert!(matches!(&**plan, MountPlan::Csi(csi) if csi.block));
    let status = state.status(&"u".into(), at(0)).unwrap();
    assert_eq!(
        status.volumes[0].host_path,
        "/root/pods/u/volumeDevices/kubernetes.io~csi/pv"
    );
    let mut state = ready("volumeMounts");
    persistent(&mut state, json!({"volumeMode": "Block"}));
    let error = "volume v has volumeMode Block, but is specified in volumeMounts";
    assert!(message(&state).ends_with(error), "{}", message(&state));
}

#[test]
fn tokens_are_passed_and_volumes_republished() {
    let mut state = ready("volumeMounts");
    let requests = json!([{"audience": "vault", "expirationSeconds": 600}]);
    driver(
        &mut state,
        json!({"tokenRequests": requests, "requiresRepublish": true}),
    );
    assert!(state.start_operations(at(0)).is_empty(), "no token yet");
    let changes = state.take_subscription_changes().tokens;
    let [SubscriptionChange::Subscribe(key)] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (key.audience.as_str(), key.expiration_seconds),
        ("vault", 600)
    );
    let issue = |state: &mut StateOfWorld, token: &str| {
        let issued = IssuedToken {
            token: token.as_bytes().to_vec().into(),
            expires_at: at(600),
        };
        state.update_token(key, Ok(issued), at(0));
    };
    issue(&mut state, "t1");
    let operations = run_all(&mut state, 0);
    let [Operation::SetUp(_, plan)] = &operations[..] else {
        panic!("{operations:?}")
    };
    let MountPlan::Csi(csi) = &**plan else {
        panic!()
    };
    let tokens: Value = serde_json::from_slice(&csi.tokens.as_ref().unwrap().0).unwrap();
    let expected = json!({"vault": {"token": "t1", "expirationTimestamp": "1970-01-12T13:56:40Z"}});
    assert_eq!(tokens, expected);
    assert!(!format!("{csi:?}").contains("t1\""), "{csi:?}");
    // At once for a new token, and periodically.
    assert!(state.start_operations(at(1)).is_empty());
    issue(&mut state, "t2");
    assert!(matches!(
        &run_all(&mut state, 2)[..],
        [Operation::Update(_, _, VolumeUpdate::Republish)]
    ));
    assert!(state.start_operations(at(76)).is_empty());
    let wake = state.next_retry().unwrap();
    assert_eq!(wake, at(77));
    assert!(matches!(
        &run_all(&mut state, 77)[..],
        [Operation::Update(_, _, VolumeUpdate::Republish)]
    ));
}

#[test]
fn fs_group_and_read_only_follow_the_pod() {
    let mut state = ready("volumeMounts");
    driver(&mut state, json!({"podInfoOnMount": true}));
    let csi = json!({"driver": DRIVER, "volumeHandle": "vol", "fsType": "ext4", "readOnly": true});
    persistent(
        &mut state,
        json!({"accessModes": ["ReadWriteOncePod"], "csi": csi}),
    );
    let operations = run_all(&mut state, 0);
    let [Operation::SetUp(_, plan)] = &operations[..] else {
        panic!("{operations:?}")
    };
    let MountPlan::Csi(csi) = &**plan else {
        panic!("{plan:?}")
    };
    assert_eq!((csi.gid, csi.read_only), (Some(9), false));
    // The pod info is not part of the staged volume.
    assert!(csi.attributes.is_empty() && !csi.pod_info.is_empty());
}

#[test]
fn an_inline_volume_needs_a_driver_with_ephemeral_mode() {
    let volume = json!({"name": "v", "csi": {"driver": DRIVER}});
    let mut state = declared(volume, "volumeMounts");
    driver(&mut state, json!({}));
    let text = message(&state);
    let expected = "MountVolume.SetUp failed for volume \"v\" : kubernetes.io/csi: mounter.SetupAt failed to \
        check volume lifecycle mode: volume mode \"Ephemeral\" \
        not supported by driver d.example (only supports [\"Persistent\"])";
    assert_eq!(text, expected);
    driver(&mut state, json!({"volumeLifecycleModes": ["Ephemeral"]}));
    assert_eq!(state.metadata_to_store(&"u".into()), None);
    assert_eq!(run_all(&mut state, 0).len(), 1);
    // After a restart it shows that the volume is complete.
    let stored = state.metadata_to_store(&"u".into()).unwrap().host_paths;
    assert_eq!(stored, BTreeMap::from([("v".into(), INLINE.into())]));
}

#[test]
fn the_stored_path_of_an_inline_volume_is_no_mount() {
    let volume = || json!({"name": "v", "csi": {"driver": DRIVER}});
    let key = (layout::CSI.to_owned(), "v".to_owned());
    for (found, expected) in [
        (None, VolumePhase::Waiting),
        (Some(false), VolumePhase::Waiting),
        (Some(true), VolumePhase::Mounted),
    ] {
        let on_disk = |ready| ReconstructedVolume {
            ready,
            ..ReconstructedVolume::default()
        };
        let pod = ReconstructedPod {
            metadata: PodMetadata {
                pod: pod_name(),
                host_paths: BTreeMap::from([("v".into(), INLINE.into())]),
            },
            volumes: found
                .into_iter()
                .map(|ready| (key.clone(), on_disk(ready)))
                .collect(),
        };
        let mut state = StateOfWorld::new(Layout::new("/root"), vec![pod]);
        let phases = |state: &StateOfWorld| -> Vec<VolumePhase> {
            let status = state.status(&"u".into(), at(0)).unwrap();
            status.volumes.iter().map(|volume| volume.phase).collect()
        };
        let undeclared: Vec<VolumePhase> = found.map(|_| expected).into_iter().collect();
        assert_eq!(phases(&state), undeclared, "{found:?}");
        declare(&mut state, volume(), "volumeMounts");
        assert_eq!(phases(&state), [expected], "{found:?}");
    }
}

#[test]
fn of_two_drivers_of_one_name_the_newer_is_used() {
    let mut state = ready("volumeMounts");
    let newer = RegisteredDriver {
        name: DRIVER.into(),
        endpoint: "/newer.sock".into(),
        version: (1, 9, 0),
        ..RegisteredDriver::default()
    };
    state.set_driver(Path::new("/a"), Some(newer));
    assert_eq!(state.drivers()[DRIVER].endpoint, Path::new("/newer.sock"));
    state.set_driver(Path::new("/a"), None);
    assert_eq!(state.drivers()[DRIVER].endpoint, Path::new(""));
}
