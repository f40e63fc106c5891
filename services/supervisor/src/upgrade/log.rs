//! The journal of the upgrade under way and the history, in one file: the end of the one and the entry in the
//! other are one write.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylet_kit::state_file::{StateFile, StateFileError};
use serde::{Deserialize, Serialize};

use crate::core::upgrade::journal::{StartComparison, UpgradeJournal, UpgradeRecord};

/// Version of the file's format.
pub(crate) const VERSION: u32 = 1;
/// The file, in the supervisor's state directory.
const FILE: &str = "upgrades.json";
/// The most records.
const MAX_RECORDS: usize = 500;

/// The content of the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct UpgradeHistory {
    /// The upgrade under way.
    pub(crate) current: Option<UpgradeJournal>,
    /// The latest last.
    pub(crate) records: Vec<UpgradeRecord>,
}

/// The file and its content.
#[derive(Clone)]
pub(crate) struct UpgradeLog {
    file: StateFile<UpgradeHistory>,
    history: Arc<Mutex<UpgradeHistory>>,
}

impl UpgradeLog {
    /// Reads the file below the supervisor's state directory. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or a newer build wrote it.
    pub(crate) fn open(directory: &Path) -> Result<UpgradeLog, StateFileError> {
        // A failure shows when the file is written.
        let _ = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        let file: StateFile<UpgradeHistory> = StateFile::new(directory.join(FILE), VERSION);
        let history = file.restore("the history of upgrades is lost")?;
        Ok(UpgradeLog {
            file,
            history: Arc::new(Mutex::new(history.unwrap_or_default())),
        })
    }

    /// The present content.
    pub(crate) fn history(&self) -> UpgradeHistory {
        self.lock().clone()
    }

    /// Records how far the upgrade is; it is on disk when this returns.
    pub(crate) async fn record(&self, journal: &UpgradeJournal) -> Result<(), StateFileError> {
        self.update(|history| history.current = Some(journal.clone()))
            .await
    }

    /// Records the end of a swap, and the next one if there is one.
    pub(crate) async fn finish(
        &self,
        record: UpgradeRecord,
        next: Option<UpgradeJournal>,
    ) -> Result<(), StateFileError> {
        self.update(|history| {
            history.current = next;
            history.records.push(record);
            let excess = history.records.len().saturating_sub(MAX_RECORDS);
            history.records.drain(..excess);
        })
        .await
    }

    /// Adds how pods have started since a run; `false` if there was none of this number.
    pub(crate) async fn record_starts(
        &self,
        run: u64,
        starts: StartComparison,
    ) -> Result<bool, StateFileError> {
        let of_run = |record: &&mut UpgradeRecord| record.run == run;
        if !self
            .history()
            .records
            .iter()
            .any(|record| record.run == run)
        {
            return Ok(false);
        }
        self.update(|history| {
            for record in history.records.iter_mut().filter(of_run) {
                record.starts = Some(starts.clone());
            }
        })
        .await?;
        Ok(true)
    }

    async fn update(&self, change: impl FnOnce(&mut UpgradeHistory)) -> Result<(), StateFileError> {
        let changed = {
            let mut history = self.lock();
            change(&mut history);
            history.clone()
        };
        self.file.save_async(changed).await
    }

    fn lock(&self) -> MutexGuard<'_, UpgradeHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
