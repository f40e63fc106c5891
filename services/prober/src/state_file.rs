//! The results on disk, so that a restart changes none.

use std::path::Path;

use jiff::Timestamp;
use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_model::probe::ProbeKind;
use serde::{Deserialize, Serialize};

use crate::core::types::{ProbeId, ProbeOutcome, ProbeResult, Results};

/// The file in the run directory.
pub(crate) const FILE_NAME: &str = "probe-results.json";
/// Version of the file's format.
pub(crate) const VERSION: u32 = 1;

/// The stored results.
#[derive(Clone)]
pub(crate) struct ResultsFile(StateFile<Vec<StoredResult>>);

#[derive(Debug, Serialize, Deserialize)]
struct StoredResult {
    pod: String,
    container: String,
    kind: StoredKind,
    success: bool,
    run_length: u32,
    message: String,
    since: Option<Timestamp>,
    traceparent: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum StoredKind {
    Startup,
    Liveness,
    Readiness,
}

impl ResultsFile {
    pub(crate) fn new(run_dir: &Path) -> Self {
        ResultsFile(StateFile::new(run_dir.join(FILE_NAME), VERSION))
    }

    /// Loads all results. A corrupt file is set aside: its containers are probed again.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn load(&self) -> Result<Results, StateFileError> {
        let stored = self
            .0
            .restore("containers are probed as if they had just started")?;
        let stored = stored.unwrap_or_default().into_iter();
        Ok(stored.map(from_stored).collect())
    }

    /// Saves all results. Blocks.
    pub(crate) fn save(&self, results: &Results) -> Result<(), StateFileError> {
        self.0.save(&results.iter().map(to_stored).collect())
    }
}

fn to_stored((id, result): (&ProbeId, &ProbeResult)) -> StoredResult {
    StoredResult {
        pod: id.pod.to_string(),
        container: id.container.to_string(),
        kind: match id.kind {
            ProbeKind::Startup => StoredKind::Startup,
            ProbeKind::Liveness => StoredKind::Liveness,
            ProbeKind::Readiness => StoredKind::Readiness,
        },
        success: result.outcome == ProbeOutcome::Success,
        run_length: result.run_length,
        message: result.message.clone(),
        since: result.since,
        traceparent: result.traceparent.clone(),
    }
}

fn from_stored(stored: StoredResult) -> (ProbeId, ProbeResult) {
    let id = ProbeId {
        pod: stored.pod.into(),
        container: stored.container.into(),
        kind: match stored.kind {
            StoredKind::Startup => ProbeKind::Startup,
            StoredKind::Liveness => ProbeKind::Liveness,
            StoredKind::Readiness => ProbeKind::Readiness,
        },
    };
    let result = ProbeResult {
        outcome: if stored.success {
            ProbeOutcome::Success
        } else {
            ProbeOutcome::Failure
        },
        run_length: stored.run_length,
        message: stored.message,
        since: stored.since,
        traceparent: stored.traceparent,
    };
    (id, result)
}
