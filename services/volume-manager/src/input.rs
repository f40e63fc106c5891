//! Everything that the event loop handles.

use std::path::PathBuf;
use std::sync::Arc;

use polylet_model::PodUid;
use polylet_wire::common::v1::Cause;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::oneshot;

use crate::core::certificates::{CertificateKey, ReportedCertificate};
use crate::core::csi_volume::RegisteredDriver;
use crate::core::desired_state::DeclareError;
use crate::core::node_info::NodeInfo;
use crate::core::operation::OperationResult;
use crate::core::pod::PodName;
use crate::core::reference_key::ReferenceKey;
use crate::core::references::ObjectState;
use crate::core::spec::PodVolumeSpec;
use crate::core::state_of_world::MountedVolume;
use crate::core::sub_path::SubPath;
use crate::core::tokens::{IssuedToken, PodTokenKey};

/// The client of a declaration.
#[derive(Debug)]
pub struct Caller {
    /// Identifies the client's incarnation.
    pub client_id: String,
    /// Rises with each declaration of the client.
    pub sequence: u64,
    /// The span that caused the declaration.
    pub cause: Option<Cause>,
}

/// Answers a declaration.
pub type Reply = oneshot::Sender<Result<PodVolumes, DeclareError>>;

/// The subPaths of one container.
#[derive(Debug)]
pub struct SubPathRequest {
    /// The uid of the pod.
    pub uid: PodUid,
    /// The name of the container.
    pub container: String,
    /// The subPaths.
    pub sub_paths: Vec<SubPath>,
    /// The span that caused the request.
    pub cause: Option<Cause>,
}

/// Everything that the event loop handles.
pub enum Input {
    /// An `ApplyPod` request.
    Apply(Caller, PodName, Arc<PodVolumeSpec>, Reply),
    /// A `ReleasePod` request.
    Release(Caller, PodName, Reply),
    /// `CompleteDesired`, with the client's id and its count of pods.
    Complete(String, u32, oneshot::Sender<Result<(), DeclareError>>),
    /// `PrepareSubPaths`; answered with the paths when all are bound.
    SubPaths(SubPathRequest, oneshot::Sender<Result<Vec<String>, String>>),
    /// A referenced object has been received.
    Object(ReferenceKey, ObjectState),
    /// A CSI driver has registered with this socket, or is gone.
    Driver(PathBuf, Option<RegisteredDriver>),
    /// The Node object has been received.
    NodeInfo(NodeInfo),
    /// A request for the mounted volumes.
    MountedVolumes(oneshot::Sender<Vec<MountedVolume>>),
    /// A token request has ended.
    Token(PodTokenKey, Result<IssuedToken, String>),
    /// The state of a certificate has been received.
    Certificate(CertificateKey, ReportedCertificate),
    /// An operation has ended; with its span as cause, if it had one.
    OperationFinished(OperationResult, Option<Cause>),
}
