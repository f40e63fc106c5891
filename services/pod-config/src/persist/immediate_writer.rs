//! State of a static source, written when it changes and in parallel to the start of its pods.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylet_kit::config::KeepSecrets;
use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_kit::{CancellationToken, report};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::core::state::{PersistedSource, VERSION};

/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Longest wait for a write: a slow disk must not delay pods further.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// One state file, of which only the latest state is written. Clones share it.
#[derive(Clone)]
pub struct ImmediateWriter {
    file: StateFile<PersistedSource>,
    desired: watch::Sender<Arc<PersistedSource>>,
    saved: watch::Sender<Arc<PersistedSource>>,
    keep_secrets: KeepSecrets,
}

impl ImmediateWriter {
    /// A writer of the file at `path`.
    pub fn new(path: PathBuf, keep_secrets: KeepSecrets) -> ImmediateWriter {
        let empty = Arc::new(PersistedSource::default());
        ImmediateWriter {
            file: StateFile::new(path, VERSION),
            desired: watch::Sender::new(empty.clone()),
            saved: watch::Sender::new(empty),
            keep_secrets,
        }
    }

    /// The state of an earlier process, if it is of the same source. A corrupt file is set aside:
    /// the node goes on with what its sources return.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub fn load(&self, source_id: &str) -> Result<PersistedSource, StateFileError> {
        let effect = "state file cannot be used; waiting for the source";
        let state = Arc::new(self.file.restore(effect)?.unwrap_or_default());
        self.desired.send_replace(state.clone());
        self.saved.send_replace(state.clone());
        Ok(if state.source_id == source_id {
            PersistedSource::clone(&state)
        } else {
            PersistedSource::default()
        })
    }

    /// Schedules a write, unless the state is already on disk.
    pub fn schedule(&self, state: PersistedSource) {
        let state = state.persisted(self.keep_secrets);
        self.desired.send_if_modified(|desired| {
            let changed = **desired != state;
            if changed {
                *desired = Arc::new(state);
            }
            changed
        });
    }

    /// Waits until the last scheduled state is on disk, for a limited time.
    pub async fn wait_until_saved(&self) {
        let desired = self.desired.borrow().clone();
        let mut saved = self.saved.subscribe();
        let on_disk = saved.wait_for(|saved| Arc::ptr_eq(saved, &desired));
        if timeout(SAVE_TIMEOUT, on_disk).await.is_err() {
            let path = self.file.path().display();
            tracing::warn!(%path, "disk is slow; publishing pods before their state is saved");
        }
    }

    /// Writes changes until the drain.
    pub async fn run(self, drain: CancellationToken) {
        let mut desired = self.desired.subscribe();
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                changed = desired.changed() => if changed.is_err() { return },
            }
            while let Err(error) = self.save().await {
                tracing::debug!(error, "failed to write state; retrying");
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = sleep(RETRY_DELAY) => {}
                }
            }
        }
    }

    /// Writes the last scheduled state; returns the error, if any.
    pub async fn flush(&self) -> Vec<String> {
        self.save().await.err().into_iter().collect()
    }

    async fn save(&self) -> Result<(), String> {
        let desired = self.desired.borrow().clone();
        if Arc::ptr_eq(&desired, &self.saved.borrow()) {
            return Ok(());
        }
        let saved = self.file.save_async(desired.clone()).await;
        saved.map_err(|error| report(&error))?;
        self.saved.send_replace(desired);
        Ok(())
    }
}
