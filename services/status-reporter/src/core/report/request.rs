//! Status requests and their results.

use polylet_model::PodUid;
use std::time::Duration;

use super::desired::ApiAction;
use crate::core::shared_status::SharedStatus;

/// A request to send now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusRequest {
    /// The pod's uid on this node.
    pub(crate) pod: PodUid,
    /// The pod's uid at the API server.
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) action: ApiAction,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PatchResult {
    /// Patched; the status as the API server has it now.
    Patched(SharedStatus),
    /// Deleted, or marked for deletion.
    Deleted,
    /// Rejected for this pod: it is gone or replaced, which the watch will report, or invalid.
    Rejected,
    /// The API server is unavailable or overloaded: all pods wait this long.
    Unavailable(Duration),
}
