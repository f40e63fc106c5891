//! The supervisor itself, whose program is replaced in its process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::BackendError;
use crate::core::handover::HandoverState;
use crate::handover::ReplaceError;

/// A request to the event loop of this process.
pub(crate) enum OwnRequest {
    /// For the state that would be handed over.
    State(oneshot::Sender<HandoverState>),
    /// To replace the program.
    Replace(ReplaceRequest),
}

/// Another program for this process.
pub(crate) struct ReplaceRequest {
    /// Its file.
    pub(crate) program: PathBuf,
    /// The file of the present program, to which the process returns if the other cannot continue.
    pub(crate) previous: Option<PathBuf>,
    /// How long the other may take to be in step, before the kernel ends the process.
    pub(crate) deadline: Duration,
    /// Answered if the program was not replaced.
    pub(crate) response: oneshot::Sender<ReplaceError>,
}

/// This process, as an upgrade sees it. Clones refer to the same one.
#[derive(Clone)]
pub(crate) struct OwnHandle {
    /// Identifies the program in this process, which keeps its id when it is replaced.
    pub(crate) image: String,
    /// The program continued in the process of another one.
    pub(crate) continued: bool,
    /// Why another program returned to this one.
    pub(crate) refusal: Option<String>,
    requests: UnboundedSender<OwnRequest>,
}

impl OwnHandle {
    pub(crate) fn new(
        continued: bool,
        refusal: Option<String>,
        requests: UnboundedSender<OwnRequest>,
    ) -> OwnHandle {
        // Unique on this machine: no other program was started in this process at that time.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (pid, seconds, nanos) = (std::process::id(), now.tv_sec, now.tv_nsec);
        OwnHandle {
            image: format!("{pid}-{seconds}.{nanos:09}"),
            continued,
            refusal,
            requests,
        }
    }

    /// The state that would be handed over.
    pub(crate) async fn state(&self) -> Result<HandoverState, BackendError> {
        let (response, state) = oneshot::channel();
        let sent = self.requests.send(OwnRequest::State(response));
        sent.map_err(|_| BackendError::Stopping)?;
        state.await.map_err(|_| BackendError::Stopping)
    }

    /// Replaces the program. Returns only if that fails.
    pub(crate) async fn replace(
        &self,
        program: PathBuf,
        previous: Option<PathBuf>,
        deadline: Duration,
    ) -> BackendError {
        let (response, failed) = oneshot::channel();
        let request = ReplaceRequest {
            program,
            previous,
            deadline,
            response,
        };
        let sent = self.requests.send(OwnRequest::Replace(request));
        if sent.is_err() {
            return BackendError::Stopping;
        }
        match failed.await {
            Ok(error) => BackendError::Replace(error),
            Err(_) => BackendError::Stopping,
        }
    }
}

/// Whether this process runs the program in a file.
pub(crate) fn runs(program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    // Valid even if the file has been replaced since this process started.
    let own = file(Path::new("/proc/self/exe"));
    own.is_some() && own == file(program)
}
