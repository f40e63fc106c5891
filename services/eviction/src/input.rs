//! The inputs of the event loop.

use jiff::Timestamp;
use polylet_watch::Update;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::usage::LocalStorageSample;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A change of the desired pods.
    Pod(Update<String, Pod>),
    /// A change of the pods in the runtime.
    PodState(Update<String, PodState>),
    /// A call of `GetSummary`.
    Summary(SummaryRequest),
    /// The usage of pods with local storage limits.
    LocalStorage(Vec<LocalStorageSample>),
    /// The next sync iteration is due.
    Timer,
}

/// A call of `GetSummary`.
pub(crate) struct SummaryRequest {
    /// A summary taken at this time or later may be reused.
    pub(crate) not_older_than: Option<Timestamp>,
    pub(crate) only_cpu_and_memory: bool,
    /// Receives the summary and its time.
    pub(crate) response: oneshot::Sender<(Timestamp, Value)>,
}
