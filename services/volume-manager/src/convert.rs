//! Between the wire and the words of this service.

use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::podconfig::v1::WatchObjectResponse;
use polylet_wire::podconfig::v1::watch_object_response::State as Wire;
use polylet_wire::volume::v1::{
    Driver, PodVolumes, Volume, VolumePhase, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tokio::sync::watch;

use crate::core::csi::Registered;
use crate::core::layout;
use crate::core::objects::{ObjectKind, ObjectState};
use crate::core::spec::PodName;
use crate::core::state::State;
use crate::core::sub_path::SubPath;
use crate::core::view::{Phase, PodView, VolumeView};

/// A pod named on the wire; `None` when its uid could not name a directory.
pub fn pod(from: Option<PodRef>) -> Option<PodName> {
    let PodRef {
        uid,
        namespace,
        name,
    } = from?;
    layout::is_safe_uid(&uid).then_some(PodName {
        uid,
        namespace,
        name,
    })
}

/// A pod's name for the wire.
pub fn pod_ref(pod: &PodName) -> PodRef {
    PodRef {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
}

/// A view for the wire.
pub fn volumes(view: &PodView, cause: Option<Cause>) -> PodVolumes {
    PodVolumes {
        r#ref: Some(pod_ref(&view.pod)),
        sequence: view.sequence,
        volumes: view.volumes.iter().map(volume).collect(),
        cause,
    }
}

fn volume(view: &VolumeView) -> Volume {
    let phase = match view.phase {
        Phase::Waiting => VolumePhase::Waiting,
        Phase::Mounted => VolumePhase::Mounted,
        Phase::Releasing => VolumePhase::Releasing,
        Phase::Gone => VolumePhase::Gone,
        Phase::Failed => VolumePhase::Failed,
    };
    Volume {
        name: view.name.clone(),
        phase: phase.into(),
        host_path: view.host_path.clone(),
        message: view.message.clone(),
        since: Some(polylet_wire::time::to_wire(view.since)),
    }
}

/// Parts of volumes as they are asked for.
pub fn sub_paths(from: Vec<polylet_wire::volume::v1::SubPath>) -> Vec<SubPath> {
    let part = |part: polylet_wire::volume::v1::SubPath| SubPath {
        mount_index: part.mount_index,
        volume: part.volume,
        path: part.path,
    };
    from.into_iter().map(part).collect()
}

/// An object as pod-config tells it.
pub fn object(kind: ObjectKind, from: WatchObjectResponse) -> ObjectState {
    match from.state {
        Some(Wire::Manifest(json)) => ObjectState::from_json(kind, &json),
        Some(Wire::Absent(_)) => ObjectState::Absent,
        Some(Wire::Unknown(unknown)) => ObjectState::Unknown(unknown.message),
        None => ObjectState::Unheard,
    }
}

/// What the cluster is told of drivers and their volumes, for whoever watches.
#[derive(Clone, Default)]
pub struct CsiTold {
    /// The drivers.
    pub drivers: watch::Sender<WatchDriversResponse>,
    /// Their volumes.
    pub in_use: watch::Sender<WatchVolumesInUseResponse>,
}

impl CsiTold {
    /// Tells what has changed.
    pub fn publish(&self, state: &State) {
        let drivers = WatchDriversResponse {
            drivers: state.drivers().into_values().map(driver).collect(),
        };
        let in_use = WatchVolumesInUseResponse {
            names: state.in_use().into_iter().collect(),
        };
        self.drivers.send_if_modified(|told| replace(told, drivers));
        self.in_use.send_if_modified(|told| replace(told, in_use));
    }
}

fn replace<T: PartialEq>(told: &mut T, now: T) -> bool {
    let news = *told != now;
    *told = now;
    news
}

fn driver(of: Registered) -> Driver {
    Driver {
        name: of.name,
        node_id: of.node_id,
        topology: of.topology.into_iter().collect(),
        max_volumes: of.max_volumes,
    }
}
