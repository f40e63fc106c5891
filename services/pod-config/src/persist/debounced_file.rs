//! Small state files that change often, written as a whole.

use std::path::PathBuf;

use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_kit::{CancellationToken, report};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Debouncer;
use crate::core::cluster::state::VERSION;

/// Each change writes everything, and in a burst there are many: a twentieth of the time at most.
const PAUSE_FACTOR: u32 = 20;

/// One state file. Clones share it. The contents are collected for each write, so that no copy is
/// held in between.
pub(crate) struct DebouncedFile<T> {
    file: StateFile<T>,
    debouncer: Debouncer,
}

impl<T> Clone for DebouncedFile<T> {
    fn clone(&self) -> Self {
        DebouncedFile {
            file: self.file.clone(),
            debouncer: self.debouncer.clone(),
        }
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> DebouncedFile<T> {
    pub(crate) fn new(path: PathBuf) -> Self {
        DebouncedFile {
            file: StateFile::new(path, VERSION),
            debouncer: Debouncer::new(PAUSE_FACTOR),
        }
    }

    /// The state of an earlier process. A corrupt file is set aside.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn load(&self) -> Result<Option<T>, StateFileError> {
        self.file.restore(EFFECT_OF_LOSS)
    }

    /// Removes the file of an earlier process.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.file.remove() {
            tracing::warn!(error = report(&error), "failed to remove state file");
        }
    }

    /// Schedules a write of a change that is needed after a crash.
    pub(crate) fn schedule(&self) {
        self.debouncer.schedule();
    }

    /// Schedules a write of a change that is merely useful after a crash.
    pub(crate) fn schedule_lazy(&self) {
        self.debouncer.schedule_lazy();
    }

    /// The scheduler of the writes.
    pub(crate) fn debouncer(&self) -> Debouncer {
        self.debouncer.clone()
    }

    /// Writes what `collect` returns when due, until the drain.
    pub(crate) async fn run(self, collect: impl Fn() -> T, drain: CancellationToken) {
        let write = async || {
            let saved = self.file.save_async(collect()).await;
            saved.map_err(|error| report(&error))
        };
        self.debouncer.clone().run(write, drain).await;
    }
}

const EFFECT_OF_LOSS: &str = "state file cannot be used; waiting for the API server";
