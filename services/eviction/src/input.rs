//! The inputs of the event loop.

use polylet_model::PodUid;
use polylet_watch::Update;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use tokio::sync::oneshot;

use crate::core::pods::NodePods;
use crate::core::rank::Candidate;
use crate::core::signal::Observations;
use crate::core::threshold::Threshold;
use crate::usage::LocalStorageSample;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A change of the desired pods.
    Pod(Update<PodUid, Pod>),
    /// A change of the pods in the runtime.
    PodState(Update<PodUid, PodState>),
    /// A summary needs the pods of the node.
    Pods(oneshot::Sender<NodePods>),
    /// The usage of pods with local storage limits.
    LocalStorage(Vec<LocalStorageSample>),
    /// The next sync iteration is due.
    Timer,
    /// The volumes of pods were checked a while ago.
    VolumesChecked,
    /// The node was observed.
    Observed(NodeObservation),
    /// Dead containers should have been removed by now.
    ContainersOverdue,
    /// Image-gc has removed unused images, or failed.
    ImagesReclaimed,
    /// The node was observed after dead containers and unused images were removed.
    ObservedAfterReclaim(NodeObservation),
    /// The candidates for an eviction were measured.
    Candidates(MeasuredCandidates),
}

/// An observation of the node.
pub(crate) struct NodeObservation {
    pub(crate) observations: Observations,
    /// Whether images and pods share a file system; `None` while that is unknown.
    pub(crate) one_filesystem: Option<bool>,
}

/// The candidates for an eviction and its cause.
pub(crate) struct MeasuredCandidates {
    pub(crate) threshold: Threshold,
    pub(crate) observations: Observations,
    /// `None` when nothing could be measured.
    pub(crate) candidates: Option<Vec<Candidate>>,
}
