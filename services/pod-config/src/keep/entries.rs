//! What the cluster said of many things, each of which changes by itself: a change costs what has
//! changed, not all there is. What is written together costs one sync.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polylet_kit::{CancellationToken, kept, report};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Pace;
pub(crate) use file::{EntryFile, Form};

/// What is gone or was replaced is off the disk so soon: it may have been a password …
const CLEAN_AFTER: Duration = Duration::from_secs(60);
/// … and cleaning, which writes everything, costs a hundredth of the time at most.
const SHARE: u32 = 100;
const CLEAN_AT_LAST: Duration = Duration::from_secs(3600);

/// What is kept, asked for when it is written.
pub(crate) trait Source<K> {
    /// One thing as it is kept.
    type Entry: Serialize + Send + 'static;
    /// The keys of all that there is.
    fn keys(&self) -> Vec<K>;
    /// What there is under a key.
    fn entry(&self, key: &K) -> Option<Self::Entry>;
}

/// One kept file. Clones share it.
#[derive(Clone)]
pub(crate) struct Entries<K> {
    path: PathBuf,
    pace: Pace,
    changed: Arc<Mutex<BTreeSet<K>>>,
    /// As it was read, until it is written on.
    open: Arc<Mutex<Option<EntryFile<K>>>>,
}

impl<K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static> Entries<K> {
    pub(crate) fn new(path: PathBuf) -> Entries<K> {
        Entries {
            path,
            pace: Pace::new(),
            changed: Arc::default(),
            open: Arc::default(),
        }
    }

    /// What a former life has kept, as far as it is wanted. A line that cannot be read costs what it
    /// told; a file of such lines alone is put aside.
    pub(crate) fn load<T: DeserializeOwned>(
        &self,
        form: &Form<K, T>,
        wanted: impl Fn(&K, &T) -> bool,
    ) -> BTreeMap<K, T> {
        let found = match file::load(&self.path, form, wanted) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("what was kept cannot be used: {}", report(&error));
                return BTreeMap::new();
            }
        };
        if let Some(first) = found.broken.first() {
            let (path, lines) = (self.path.display(), found.broken.len());
            tracing::warn!(%path, lines, first, "what was kept cannot be used: broken lines");
            if found.entries.is_empty()
                && let Err(error) = kept::set_aside(&self.path)
            {
                tracing::warn!("{}", report(&error));
            }
        }
        *lock(&self.open) = found.file;
        found.entries
    }

    /// Something changed that matters.
    pub(crate) fn soon(&self, key: K) {
        lock(&self.changed).insert(key);
        self.pace.soon();
    }

    /// Something changed.
    pub(crate) fn later(&self, key: K) {
        lock(&self.changed).insert(key);
        self.pace.later();
    }

    /// When it is written.
    pub(crate) fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// Writes until the drain what has changed of the source.
    pub(crate) async fn run(self, source: impl Source<K>, drain: CancellationToken) {
        let pace = self.pace.clone();
        let mut writer = Writer::new(self, source);
        pace.run(async || writer.write(Instant::now()).await, drain)
            .await;
    }
}

/// Who writes.
struct Writer<K, S> {
    entries: Entries<K>,
    source: S,
    /// Nothing when all has to be written.
    file: Option<EntryFile<K>>,
    /// When it is to be written whole, so that nothing is left of what is no more.
    clean_at: Option<Instant>,
    clean_after: Duration,
}

impl<K, S> Writer<K, S>
where
    K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static,
    S: Source<K>,
{
    fn new(entries: Entries<K>, source: S) -> Self {
        let file = lock(&entries.open).take();
        Writer {
            entries,
            source,
            file,
            clean_at: None,
            clean_after: CLEAN_AFTER,
        }
    }

    async fn write(&mut self, now: Instant) -> Result<(), String> {
        let changed = std::mem::take(&mut *lock(&self.entries.changed));
        let clean = self.clean_at.is_some_and(|at| at <= now);
        let written = if changed.is_empty() && !clean {
            Ok(())
        } else {
            self.write_these(&changed, clean, now).await
        };
        if written.is_err() {
            lock(&self.entries.changed).extend(changed);
        }
        if let Some(at) = self.clean_at {
            self.entries.pace.at(at);
        }
        written
    }

    async fn write_these(
        &mut self,
        changed: &BTreeSet<K>,
        clean: bool,
        now: Instant,
    ) -> Result<(), String> {
        let file = self.file.take();
        let file = file.filter(|file| !clean && !file.is_wasteful());
        let whole = file.is_none();
        let written = match file {
            Some(mut file) => {
                let entry = |key: &K| (key.clone(), self.source.entry(key));
                let changes: Vec<_> = changed.iter().map(entry).collect();
                aside(move || file.append(changes).map(|()| file)).await
            }
            None => {
                let entry = |key: K| self.source.entry(&key).map(|entry| (key, entry));
                let all: Vec<_> = self.source.keys().into_iter().filter_map(entry).collect();
                let path = self.entries.path.clone();
                aside(move || EntryFile::create(&path, all)).await
            }
        };
        let file = written?;
        if whole {
            let took = now.elapsed() * SHARE;
            self.clean_after = took.clamp(CLEAN_AFTER, CLEAN_AT_LAST);
            self.clean_at = None;
        }
        if file.has_waste() && self.clean_at.is_none() {
            self.clean_at = Some(now + self.clean_after);
        }
        self.file = Some(file);
        Ok(())
    }
}

/// Does work that may block, on a thread of its own.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, kept::KeptError> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| report(&error)),
        Err(error) => Err(format!("writing was given up: {error}")),
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change leaves it whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
