//! Conversions between wire and domain types.

use jiff::Timestamp;
use polylet_kit::Notices;
use polylet_model::constants::reason;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::notice::v1::Severity;
use polylet_wire::podconfig::v1::watch_node_response::State as NodeState;
use polylet_wire::podconfig::v1::watch_object_response::State as WireObjectState;
use polylet_wire::podconfig::v1::watch_pod_certificate_response::State as WireCertificate;
use polylet_wire::podconfig::v1::{
    IssueTokenRequest, IssueTokenResponse, PodSource, WatchNodeResponse, WatchObjectRequest,
    WatchObjectResponse, WatchPodCertificateRequest, WatchPodCertificateResponse,
};
use polylet_wire::time::{from_wire_opt, to_wire};
use polylet_wire::volume::v1 as wire;
use polylet_wire::volume::v1::{
    ClaimSize, Driver, FsUsage, PodVolumes, ResizeStatus, Volume, VolumeStats,
    WatchClaimSizesResponse, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tonic::{Code, Status};

use crate::core::certificates::{CertificateKey, IssuedCertificate, ReportedCertificate};
use crate::core::csi_volume::RegisteredDriver;
use crate::core::desired_state::DeclareError;
use crate::core::layout;
use crate::core::node_info::NodeInfo;
use crate::core::pod::PodName;
use crate::core::reference_key::{ObjectKind, ReferenceKey};
use crate::core::references::ObjectState;
use crate::core::state_of_world::{MountedVolume, ResizeState, ResizingClaim, StateOfWorld};
use crate::core::status::{PodVolumeStatus, VolumePhase, VolumeStatus};
use crate::core::sub_path::SubPath;
use crate::core::tokens::{IssuedToken, PodTokenKey};
use crate::csi::client::{DriverUsage, UnitUsage};
use crate::event::{Event, EventSubject};

/// A pod from the wire; `None` if its uid cannot name a directory.
pub fn pod_name(from: Option<PodRef>) -> Option<PodName> {
    let PodRef {
        uid,
        namespace,
        name,
    } = from?;
    layout::is_safe_uid(&uid).then(|| PodName {
        uid: uid.into(),
        namespace,
        name,
    })
}

/// A pod for the wire.
pub fn pod_ref(pod: &PodName) -> PodRef {
    PodRef {
        uid: pod.uid.to_string(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
    }
}

/// Emits an event as a notice.
pub fn notice(notices: &Notices, event: Event) {
    let (reason, message) = (event.reason.as_str(), event.message);
    match (event.subject, event.warning) {
        (EventSubject::Pod(pod), true) => {
            notices.warning(&pod_ref(&pod), "", reason, message);
        }
        (EventSubject::Pod(pod), false) => {
            notices.normal(&pod_ref(&pod), "", reason, message);
        }
        (EventSubject::Object(object), warning) => {
            let severity = match warning {
                true => Severity::Warning,
                false => Severity::Normal,
            };
            notices.object(object, severity, reason, message);
        }
    }
}

/// The gRPC status of a refused declaration.
pub fn declare_status(error: DeclareError) -> Status {
    let code = match error {
        DeclareError::Superseded(_) => Code::Aborted,
        DeclareError::Stale { .. }
        | DeclareError::Conflict { .. }
        | DeclareError::CountMismatch { .. } => Code::FailedPrecondition,
    };
    Status::new(code, error.to_string())
}

/// The status of a pod's volumes for the wire.
pub fn pod_volumes(status: &PodVolumeStatus, cause: Option<Cause>) -> PodVolumes {
    PodVolumes {
        r#ref: Some(pod_ref(&status.pod)),
        sequence: status.sequence,
        volumes: status.volumes.iter().map(volume).collect(),
        cause,
    }
}

fn volume(status: &VolumeStatus) -> Volume {
    let phase = match status.phase {
        VolumePhase::Waiting | VolumePhase::Imminent => wire::VolumePhase::Waiting,
        VolumePhase::Mounted => wire::VolumePhase::Mounted,
        VolumePhase::Releasing => wire::VolumePhase::Releasing,
        VolumePhase::Unmounted => wire::VolumePhase::Gone,
        VolumePhase::Failed => wire::VolumePhase::Failed,
    };
    Volume {
        name: status.name.clone(),
        phase: phase.into(),
        host_path: status.host_path.clone(),
        message: status.message.clone(),
        since: Some(to_wire(status.since)),
        imminent: status.phase == VolumePhase::Imminent,
        rejection_reason: match status.rejected {
            true => reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED.to_owned(),
            false => String::new(),
        },
        supplemental_group: status.group,
    }
}

/// subPaths from the wire.
pub fn sub_paths(from: Vec<wire::SubPath>) -> Vec<SubPath> {
    let sub_path = |from: wire::SubPath| SubPath {
        mount_index: from.mount_index,
        volume: from.volume,
        path: from.path,
    };
    from.into_iter().map(sub_path).collect()
}

/// The request for a referenced object.
pub fn object_request(key: &ReferenceKey) -> WatchObjectRequest {
    let source = match key.cluster {
        true => PodSource::Api,
        false => PodSource::Unspecified,
    };
    WatchObjectRequest {
        kind: key.kind.as_str().to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        source: source.into(),
    }
}

/// A referenced object from the wire.
pub fn object(kind: ObjectKind, from: WatchObjectResponse) -> ObjectState {
    match from.state {
        Some(WireObjectState::Manifest(json)) => ObjectState::from_json(kind, &json),
        Some(WireObjectState::Absent(_)) => ObjectState::Absent,
        Some(WireObjectState::Unknown(unknown)) => ObjectState::Unknown(unknown.message),
        None => ObjectState::NotSynced,
    }
}

/// The request for a certificate.
pub fn certificate_request(key: &CertificateKey) -> WatchPodCertificateRequest {
    WatchPodCertificateRequest {
        pod: Some(PodRef {
            uid: key.uid.to_string(),
            namespace: key.namespace.clone(),
            name: key.pod.clone(),
        }),
        service_account: key.service_account.clone(),
        volume: key.volume.clone(),
        source_index: key.index,
        signer_name: key.signer.clone(),
        key_type: key.key_type.clone(),
        max_expiration_seconds: key.max_expiration_seconds,
        user_annotations: key.annotations.clone().into_iter().collect(),
    }
}

/// The state of a certificate from the wire.
pub fn certificate(from: WatchPodCertificateResponse) -> ReportedCertificate {
    match from.state {
        Some(WireCertificate::Certificate(issued)) => ReportedCertificate::Issued(
            IssuedCertificate::new(issued.private_key, &issued.certificate_chain),
        ),
        Some(WireCertificate::Refused(refused)) => ReportedCertificate::Denied(refused.message),
        Some(WireCertificate::Unknown(unknown)) => ReportedCertificate::Unknown(unknown.message),
        None => ReportedCertificate::Unknown(String::new()),
    }
}

/// The request for a token.
pub fn token_request(key: &PodTokenKey) -> IssueTokenRequest {
    let audiences = (!key.audience.is_empty()).then(|| key.audience.clone());
    IssueTokenRequest {
        pod: Some(PodRef {
            uid: key.uid.to_string(),
            namespace: key.namespace.clone(),
            name: key.pod.clone(),
        }),
        service_account: key.service_account.clone(),
        audiences: audiences.into_iter().collect(),
        expiration_seconds: key.expiration_seconds,
    }
}

/// A token from the wire, and when to refresh it.
pub fn token(from: IssueTokenResponse, now: Timestamp) -> (IssuedToken, Timestamp) {
    let expires_at = from_wire_opt(from.expires_at.as_ref()).unwrap_or(now);
    let refresh_at = from_wire_opt(from.refresh_at.as_ref()).unwrap_or(expires_at);
    let token = from.token.into_bytes().into();
    (IssuedToken { token, expires_at }, refresh_at)
}

/// The Node object from the wire; without one, nothing is known of it.
pub fn node_info(from: WatchNodeResponse) -> Result<NodeInfo, serde_json::Error> {
    match from.state {
        Some(NodeState::Manifest(json)) => NodeInfo::from_json(&json),
        _ => Ok(NodeInfo::default()),
    }
}

/// The registered drivers for the wire.
pub fn drivers(state: &StateOfWorld) -> WatchDriversResponse {
    WatchDriversResponse {
        drivers: state.drivers().into_values().map(driver).collect(),
    }
}

fn driver(driver: RegisteredDriver) -> Driver {
    Driver {
        name: driver.name,
        node_id: driver.node_id,
        topology: driver.topology.into_iter().collect(),
        max_volumes: driver.max_volumes,
    }
}

/// The attached volumes for the wire.
pub fn volumes_in_use(state: &StateOfWorld) -> WatchVolumesInUseResponse {
    WatchVolumesInUseResponse {
        names: state.volumes_in_use().into_iter().collect(),
    }
}

/// The resizes for the wire.
pub fn claim_sizes(state: &StateOfWorld) -> WatchClaimSizesResponse {
    let claims = state.resizing_claims().into_iter();
    WatchClaimSizesResponse {
        claims: claims
            .map(|((namespace, name), claim)| claim_size(namespace, name, claim))
            .collect(),
    }
}

fn claim_size(namespace: String, name: String, claim: ResizingClaim) -> ClaimSize {
    let (status, message) = match claim.state {
        ResizeState::InProgress => (ResizeStatus::InProgress, String::new()),
        ResizeState::Finished => (ResizeStatus::Finished, String::new()),
        ResizeState::Infeasible(error) => (ResizeStatus::Infeasible, error),
        ResizeState::Failed(error) => (ResizeStatus::Failed, error),
    };
    ClaimSize {
        namespace,
        name,
        uid: claim.uid,
        status: status.into(),
        size: claim.size,
        message,
    }
}

/// The statistics of a volume for the wire.
pub fn volume_stats((volume, usage): (MountedVolume, DriverUsage)) -> VolumeStats {
    let fs_usage = |usage: UnitUsage| FsUsage {
        available: usage.available,
        capacity: usage.capacity,
        used: usage.used,
    };
    VolumeStats {
        pod_uid: volume.uid.into(),
        name: volume.name,
        host_path: volume.host_path,
        claim: volume.claim,
        driver: volume.driver.is_some(),
        bytes: usage.bytes.map(fs_usage),
        inodes: usage.inodes.map(fs_usage),
    }
}
