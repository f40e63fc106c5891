//! The state of the peers: one pod that starts.

use polylet_watch::ProbeItemKey;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::device::v1::{AllocatedDevice, ContainerDevices, PodDevices, ResourceDevices};
use polylet_wire::pleg::v1::{Container, ContainerPhase, PodState, Sandbox};
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::prober::v1::{Outcome, ProbeKind, ProbeStatus, ProbeStatusKey};
use polylet_wire::sync::v1::{PodSync, SyncPhase};
use polylet_wire::time;
use serde_json::json;

use super::Peers;

/// The trace of the pod's start.
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

pub(crate) fn name() -> Option<PodRef> {
    Some(PodRef {
        uid: "u".into(),
        namespace: "shop".into(),
        name: "web".into(),
    })
}

pub(crate) fn cause(span: &str) -> Option<Cause> {
    Some(Cause {
        traceparent: format!("00-{TRACE}-{span}-01"),
        ..Cause::default()
    })
}

pub(crate) fn at(second: i64) -> Option<prost_types::Timestamp> {
    Some(time::to_wire(
        jiff::Timestamp::from_second(1_700_000_000 + second).unwrap(),
    ))
}

pub(crate) fn pod() -> Pod {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [{"name": "app", "image": "x:1", "readinessProbe": {"exec": {"command": ["true"]}}}]}});
    Pod {
        r#ref: name(),
        manifest: manifest.to_string().into(),
        cause: cause("b7ad6b7169203331"),
        ..Pod::default()
    }
}

pub(crate) fn state(phase: ContainerPhase) -> PodState {
    let container = Container {
        id: "c1".into(),
        sandbox_id: "s1".into(),
        name: "app".into(),
        image: "docker.io/library/x:1".into(),
        image_id: "sha256:1".into(),
        phase: phase as i32,
        created_at: at(2),
        started_at: at(3),
        finished_at: if phase == ContainerPhase::Exited {
            at(60)
        } else {
            None
        },
        ..Container::default()
    };
    let sandbox = Sandbox {
        id: "s1".into(),
        ready: true,
        ips: vec!["10.1.0.2".into()],
        created_at: at(1),
        ..Sandbox::default()
    };
    let (sandboxes, containers) = (vec![sandbox], vec![container]);
    PodState {
        r#ref: name(),
        sandboxes,
        containers,
        cause: cause("b7ad6b7169203332"),
        ..PodState::default()
    }
}

pub(crate) fn sync(phase: SyncPhase) -> PodSync {
    PodSync {
        r#ref: name(),
        phase: phase as i32,
        acknowledged_at: at(0),
        ..PodSync::default()
    }
}

pub(crate) fn probe(outcome: Outcome, since: i64) -> ProbeStatus {
    let key = ProbeStatusKey {
        pod_uid: "u".into(),
        container_id: "c1".into(),
        kind: ProbeKind::Readiness as i32,
    };
    ProbeStatus {
        key: Some(key),
        outcome: outcome as i32,
        since: at(since),
        cause: cause("b7ad6b7169203333"),
        ..ProbeStatus::default()
    }
}

/// A device of the pod's container.
pub(crate) fn device(healthy: bool) -> PodDevices {
    let device = AllocatedDevice {
        id: "7".into(),
        healthy,
        ..AllocatedDevice::default()
    };
    let resource = ResourceDevices {
        resource: "example.com/device".into(),
        devices: vec![device],
    };
    PodDevices {
        pod_uid: "u".into(),
        containers: vec![ContainerDevices {
            name: "app".into(),
            resources: vec![resource],
        }],
    }
}

pub(crate) fn key() -> ProbeItemKey {
    ("u".into(), "c1".into(), ProbeKind::Readiness as i32)
}

pub(crate) fn filled(incarnation: &str) -> Peers {
    let peers = Peers::new(incarnation);
    peers.files.upsert("u".into(), pod());
    peers.syncs.upsert("u".into(), sync(SyncPhase::Syncing));
    peers
        .runtime_states
        .upsert("u".into(), state(ContainerPhase::Running));
    peers.probes.upsert(key(), probe(Outcome::Success, 7));
    peers
}
