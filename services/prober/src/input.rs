//! The inputs of the event loop.

use std::time::Duration;

use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use polylet_watch::Update;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::ListProbeCountsResponse;
use tokio::sync::oneshot;
use tracing::Span;

use crate::core::types::{ProbeAttempt, ProbeOutput, ResultChanges};
use crate::state_file::ResultsFile;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A change from a source of pods.
    Pod(PodSource, Update<PodUid, Pod>),
    /// A change of the pods in the runtime.
    PodState(Update<PodUid, PodState>),
    /// An attempt is complete.
    Attempt {
        attempt: ProbeAttempt,
        output: ProbeOutput,
        duration: Duration,
        span: Span,
    },
    /// A call of `ListProbeCounts`.
    ListCounts(oneshot::Sender<ListProbeCountsResponse>),
    /// Changes of results were saved, or could not be.
    Saved {
        file: ResultsFile,
        changes: ResultChanges,
        result: Result<(), StateFileError>,
    },
    /// An attempt is due, or a write of results may start.
    Timer,
}
