//! Between the wire and the words of this service.

use polylet_kit::Notices;
use polylet_model::constants::reason;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::watch_node_response::State as NodeState;
use polylet_wire::podconfig::v1::watch_object_response::State as Wire;
use polylet_wire::podconfig::v1::{WatchNodeResponse, WatchObjectResponse};
use polylet_wire::volume::v1::{
    ClaimGrowth, ClaimSize, Driver, PodVolumes, Volume, VolumeLevel, VolumePhase, VolumeStats,
    WatchClaimSizesResponse, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tokio::sync::watch;

use crate::core::csi::Registered;
use crate::core::layout;
use crate::core::objects::{ObjectKind, ObjectState};
use crate::core::place::Place;
use crate::core::spec::PodName;
use crate::core::state::{Growing, Mounted, Stands, State};
use crate::core::sub_path::SubPath;
use crate::core::view::{Phase, PodView, VolumeView};
use crate::csi::client::{Level, Levels};
use crate::run::{About, Told};

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

/// Tells people something, as a notice.
pub fn notice(notices: &Notices, told: Told) {
    let (reason, message) = (told.reason.as_str(), told.message);
    match (told.about, told.warning) {
        (About::Pod(pod), true) => notices.warning(&pod, "", reason, message),
        (About::Pod(pod), false) => notices.normal(&pod, "", reason, message),
        (About::Object(object), warning) => {
            let severity = match warning {
                true => Severity::Warning,
                false => Severity::Normal,
            };
            notices.of_object(object, severity, reason, message);
        }
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
        Phase::Waiting | Phase::Coming => VolumePhase::Waiting,
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
        coming: view.phase == Phase::Coming,
        refusal: match view.refused {
            true => reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED.to_owned(),
            false => String::new(),
        },
        group: view.group,
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
    /// The claims whose volumes grow.
    pub sizes: watch::Sender<WatchClaimSizesResponse>,
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
        let sizes = WatchClaimSizesResponse {
            claims: state.growing().into_iter().map(claim_size).collect(),
        };
        self.sizes.send_if_modified(|told| replace(told, sizes));
        self.drivers.send_if_modified(|told| replace(told, drivers));
        self.in_use.send_if_modified(|told| replace(told, in_use));
    }
}

fn replace<T: PartialEq>(told: &mut T, now: T) -> bool {
    let news = *told != now;
    *told = now;
    news
}

fn claim_size(((namespace, name), of): ((String, String), Growing)) -> ClaimSize {
    let (growth, message) = match of.stands {
        Stands::InProgress => (ClaimGrowth::InProgress, String::new()),
        Stands::Finished => (ClaimGrowth::Finished, String::new()),
        Stands::Infeasible(why) => (ClaimGrowth::Infeasible, why),
        Stands::Failed(why) => (ClaimGrowth::Failed, why),
    };
    ClaimSize {
        namespace,
        name,
        uid: of.uid,
        growth: growth.into(),
        size: of.size,
        message,
    }
}

/// What a volume holds.
pub fn stats(of: Mounted, levels: Levels) -> VolumeStats {
    let level = |of: Level| VolumeLevel {
        available: of.available,
        capacity: of.capacity,
        used: of.used,
    };
    VolumeStats {
        pod_uid: of.uid,
        name: of.name,
        host_path: of.host_path,
        claim: of.claim,
        driver: of.driver.is_some(),
        bytes: levels.0.map(level),
        inodes: levels.1.map(level),
    }
}

/// This node, as pod-config tells of it: without one, nothing of it is known.
pub fn place(said: WatchNodeResponse) -> Result<Place, serde_json::Error> {
    match said.state {
        Some(NodeState::Manifest(json)) => Place::read(&json),
        _ => Ok(Place::default()),
    }
}

fn driver(of: Registered) -> Driver {
    Driver {
        name: of.name,
        node_id: of.node_id,
        topology: of.topology.into_iter().collect(),
        max_volumes: of.max_volumes,
    }
}
