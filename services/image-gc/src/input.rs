//! The inputs of the event loop.

use polylet_model::PodUid;
use polylet_watch::Update;
use polylet_wire::imagegc::v1::{ReclaimRequest, ReclaimResponse};
use polylet_wire::podconfig::v1::{Pod, PodSource};
use tokio::sync::oneshot;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A change from a source of pods.
    Pod(PodSource, Box<Update<PodUid, Pod>>),
    /// A call of `Reclaim`.
    Reclaim(ReclaimCall),
    /// The next list of images for the node's status is due.
    ListTimer,
    /// The next periodic garbage collection is due.
    Timer,
}

/// A call of `Reclaim`, and where its response goes.
pub(crate) struct ReclaimCall {
    pub(crate) request: ReclaimRequest,
    pub(crate) response: oneshot::Sender<Result<ReclaimResponse, String>>,
}
