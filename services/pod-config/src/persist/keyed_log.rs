//! State of many objects that change one by one, in a log of records: a write costs what has changed
//! and one sync, not the size of all objects.
//!
//! Why neither one file as a whole nor a file per key ([`polylet_kit::state_dir`]): with 110 pods of
//! 1 MB on ext4, a change of one pod takes 160 ms as a whole file, 8 ms as a file of its own, and 4 ms
//! here. The changes come in bursts: 50 changed pods of 10 kB take 204 ms as 50 files, each with two
//! syncs, and 4 ms here.

mod log_file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polylet_kit::state_file::{self, StateFileError};
use polylet_kit::{CancellationToken, report};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Debouncer;
pub(crate) use log_file::{LogFile, VERSION};

/// Deleted and replaced records, which may contain passwords, are off the disk after this time, …
const COMPACT_AFTER: Duration = Duration::from_secs(60);
/// … or later, so that compaction, which writes everything, takes a hundredth of the time at most.
const COMPACT_FACTOR: u32 = 100;
const MAX_COMPACT_AFTER: Duration = Duration::from_secs(3600);

/// A write costs what has changed, and a new pod is soon on disk: a tenth of the time at most.
const PAUSE_FACTOR: u32 = 10;

/// The objects of a log, read when they are written.
pub(crate) trait RecordSource<K> {
    /// The persisted form of an object.
    type Record: Serialize + Send + 'static;
    /// Keys of all objects.
    fn keys(&self) -> Vec<K>;
    /// The object with a key.
    fn record(&self, key: &K) -> Option<Self::Record>;
}

/// One log. Clones share it.
#[derive(Clone)]
pub(crate) struct KeyedLog<K> {
    path: PathBuf,
    debouncer: Debouncer,
    changed: Arc<Mutex<BTreeSet<K>>>,
    /// The loaded file, until the writer appends to it.
    open: Arc<Mutex<Option<LogFile<K>>>>,
}

impl<K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static> KeyedLog<K> {
    pub(crate) fn new(path: PathBuf) -> KeyedLog<K> {
        KeyedLog {
            path,
            debouncer: Debouncer::new(PAUSE_FACTOR),
            changed: Arc::default(),
            open: Arc::default(),
        }
    }

    /// The records of an earlier process that `filter` accepts. A corrupt line loses its record; a
    /// file without a valid line is set aside.
    pub(crate) fn load<T: DeserializeOwned>(
        &self,
        filter: impl Fn(&K, &T) -> bool,
    ) -> BTreeMap<K, T> {
        let path = self.path.display();
        let loaded = match log_file::load(&self.path, filter) {
            Ok(loaded) => loaded,
            Err(error) => {
                let error = report(&error);
                tracing::warn!(%path, error, "failed to load state; waiting for the API server");
                return BTreeMap::new();
            }
        };
        if let Some(first) = loaded.corrupt.first() {
            let count = loaded.corrupt.len();
            tracing::warn!(%path, count, first_line = first, "ignoring corrupt lines of state file");
            if loaded.records.is_empty()
                && let Err(error) = state_file::set_aside(&self.path)
            {
                let error = report(&error);
                tracing::warn!(%path, error, "could not set the corrupt state file aside");
            }
        }
        *lock(&self.open) = loaded.file;
        loaded.records
    }

    /// Schedules a write of a change that is needed after a crash.
    pub(crate) fn schedule(&self, key: K) {
        lock(&self.changed).insert(key);
        self.debouncer.schedule();
    }

    /// Schedules a write of a change that is merely useful after a crash.
    pub(crate) fn schedule_lazy(&self, key: K) {
        lock(&self.changed).insert(key);
        self.debouncer.schedule_lazy();
    }

    /// The scheduler of the writes.
    pub(crate) fn debouncer(&self) -> Debouncer {
        self.debouncer.clone()
    }

    /// Writes changed records of the source when due, until the drain.
    pub(crate) async fn run(self, source: impl RecordSource<K>, drain: CancellationToken) {
        let debouncer = self.debouncer.clone();
        let mut writer = LogWriter::new(self, source);
        debouncer
            .run(async || writer.write(Instant::now()).await, drain)
            .await;
    }
}

/// Appends to the log and compacts it.
struct LogWriter<K, S> {
    log: KeyedLog<K>,
    source: S,
    /// `None` when everything has to be written.
    file: Option<LogFile<K>>,
    /// When to compact, if there is anything to remove.
    compact_at: Option<Instant>,
    compact_after: Duration,
}

impl<K, S> LogWriter<K, S>
where
    K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static,
    S: RecordSource<K>,
{
    fn new(log: KeyedLog<K>, source: S) -> Self {
        let file = lock(&log.open).take();
        LogWriter {
            log,
            source,
            file,
            compact_at: None,
            compact_after: COMPACT_AFTER,
        }
    }

    async fn write(&mut self, now: Instant) -> Result<(), String> {
        let changed = std::mem::take(&mut *lock(&self.log.changed));
        let compact = self.compact_at.is_some_and(|at| at <= now);
        let written = if changed.is_empty() && !compact {
            Ok(())
        } else {
            self.write_changes(&changed, compact, now).await
        };
        if written.is_err() {
            lock(&self.log.changed).extend(changed);
        }
        if let Some(at) = self.compact_at {
            self.log.debouncer.schedule_at(at);
        }
        written
    }

    async fn write_changes(
        &mut self,
        changed: &BTreeSet<K>,
        compact: bool,
        now: Instant,
    ) -> Result<(), String> {
        let file = self.file.take();
        let file = file.filter(|file| !compact && !file.needs_compaction());
        let compacted = file.is_none();
        let written = match file {
            Some(mut file) => {
                let change = |key: &K| (key.clone(), self.source.record(key));
                let changes: Vec<_> = changed.iter().map(change).collect();
                run_blocking(move || file.append(changes).map(|()| file)).await
            }
            None => {
                let record = |key: K| self.source.record(&key).map(|record| (key, record));
                let records: Vec<_> = self.source.keys().into_iter().filter_map(record).collect();
                let path = self.log.path.clone();
                run_blocking(move || LogFile::create(&path, records)).await
            }
        };
        let file = written?;
        if compacted {
            let share = now.elapsed() * COMPACT_FACTOR;
            self.compact_after = share.clamp(COMPACT_AFTER, MAX_COMPACT_AFTER);
            self.compact_at = None;
        }
        if file.has_dead_records() && self.compact_at.is_none() {
            self.compact_at = Some(now + self.compact_after);
        }
        self.file = Some(file);
        Ok(())
    }
}

/// Runs blocking work on a thread of its own.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StateFileError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| report(&error)),
        Err(error) => Err(format!("write task failed: {error}")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under the lock is complete in itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
