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
    /// Held by the one that changes the content, until it is written.
    writer: Arc<tokio::sync::Mutex<()>>,
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
            writer: Arc::default(),
        })
    }

    /// The present content.
    pub(crate) fn history(&self) -> UpgradeHistory {
        self.lock().clone()
    }

    /// Records the beginning of an upgrade; it is on disk when this returns. Where that fails, none has begun.
    pub(crate) async fn begin(&self, journal: &UpgradeJournal) -> Result<(), StateFileError> {
        self.update_or_undo(|history| history.current = Some(journal.clone()))
            .await
    }

    /// Records how far the upgrade is; it is on disk when this returns. Where that fails, it is so far nevertheless.
    pub(crate) async fn record(&self, journal: &UpgradeJournal) -> Result<(), StateFileError> {
        self.update(|history| history.current = Some(journal.clone()))
            .await
    }

    /// Records the end of a swap, and the next one if there is one. Where that fails, it has ended nevertheless.
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
        self.update_or_undo(|history| {
            for record in history.records.iter_mut().filter(of_run) {
                record.starts = Some(starts.clone());
            }
        })
        .await?;
        Ok(true)
    }

    /// Changes the content, also where it cannot be written.
    async fn update(&self, change: impl FnOnce(&mut UpgradeHistory)) -> Result<(), StateFileError> {
        let _writer = self.writer.lock().await;
        self.change_and_save(change).await
    }

    /// Changes the content, unless it cannot be written.
    async fn update_or_undo(
        &self,
        change: impl FnOnce(&mut UpgradeHistory),
    ) -> Result<(), StateFileError> {
        let _writer = self.writer.lock().await;
        let former = self.history();
        let saved = self.change_and_save(change).await;
        if saved.is_err() {
            *self.lock() = former.clone();
            // The file may be the new one already: its directory is synced after it is replaced.
            let _ = self.file.save_async(former).await;
        }
        saved
    }

    async fn change_and_save(
        &self,
        change: impl FnOnce(&mut UpgradeHistory),
    ) -> Result<(), StateFileError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::upgrade::journal::{SwapStage, UpgradeOutcome};
    use crate::core::upgrade::next::tests::journal_of;

    fn open(directory: &Path) -> UpgradeLog {
        UpgradeLog::open(directory).unwrap()
    }

    #[tokio::test]
    async fn an_upgrade_whose_beginning_is_not_written_has_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        let journal = journal_of("pleg", SwapStage::Drain);
        // Nothing can replace a directory by a file.
        let obstacle = dir.path().join(FILE);
        std::fs::create_dir(&obstacle).unwrap();
        log.begin(&journal).await.unwrap_err();
        assert!(log.history().current.is_none());
        // How far one is that has begun does not depend on the disk.
        log.record(&journal).await.unwrap_err();
        assert!(log.history().current.is_some());
        let outcome = UpgradeOutcome::Done;
        let record = journal.record(outcome, jiff::Timestamp::UNIX_EPOCH);
        log.finish(record, None).await.unwrap_err();
        assert!(log.history().current.is_none());
        assert_eq!(log.history().records.len(), 1);

        log.begin(&journal).await.unwrap_err();
        std::fs::remove_dir(&obstacle).unwrap();
        let starts = StartComparison {
            verdict: "same".to_owned(),
            before: 1,
            after: 1,
            slower: Vec::new(),
        };
        assert!(log.record_starts(1, starts).await.unwrap());
        let read = open(dir.path()).history();
        assert!(read.current.is_none(), "{read:?}");
        assert_eq!(read.records.len(), 1);
    }
}
