//! State files that are written in the background, changes in batches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_model::PodUid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::core::shared_status::SharedStatus;

/// Version of the files' format.
pub(crate) const VERSION: u32 = 1;
/// Changes within this time are written together.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// A file that takes long to write is written less often: at most a fiftieth of the time is spent writing,
const INTERVALS_PER_WRITE: u32 = 50;
/// unless this is shorter.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The content of `statuses.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PersistedStatuses {
    /// The last status of each pod, by uid. The file is written often while pods start: a status is written
    /// as it is served, and not encoded again.
    pub(crate) statuses: BTreeMap<PodUid, SharedStatus>,
    /// Pods that were Ready once: their start is not traced again.
    pub(crate) started: BTreeSet<PodUid>,
}

/// A state file and its pending write.
pub(crate) struct StateWriter<T> {
    file: StateFile<T>,
    due: Option<Instant>,
    interval: Duration,
    write_started: Instant,
    writing: Option<JoinHandle<Result<(), StateFileError>>>,
}

impl<T: Serialize + DeserializeOwned + Default + Send + 'static> StateWriter<T> {
    /// Opens the file and loads its content. A corrupt file is set aside.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn open(path: PathBuf) -> Result<(Self, T), StateFileError> {
        let file = StateFile::new(path, VERSION);
        let loaded: Option<T> = file.restore("starting without persisted state")?;
        let writer = Self {
            file,
            due: None,
            interval: MIN_INTERVAL,
            write_started: Instant::now(),
            writing: None,
        };
        Ok((writer, loaded.unwrap_or_default()))
    }

    /// Schedules a write after a change.
    pub(crate) fn schedule(&mut self) {
        self.due
            .get_or_insert_with(|| Instant::now() + self.interval);
    }

    /// Waits until a write is due or has ended.
    pub(crate) async fn wait(&mut self) {
        match (&mut self.writing, self.due) {
            (Some(writing), _) => {
                let written = writing.await;
                self.writing = None;
                self.interval = write_interval(self.write_started.elapsed());
                match written {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => self.log_failure(&error),
                    Err(error) => self.log_failure(&error),
                }
            }
            (None, Some(due)) => tokio::time::sleep_until(due).await,
            (None, None) => std::future::pending().await,
        }
    }

    fn log_failure(&self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(
            path = %self.file.path().display(),
            error = polylet_kit::report(error),
            "failed to write state file; retrying with the next change"
        );
    }

    /// Starts a write if one is due and none is in progress.
    pub(crate) fn write_if_due(&mut self, data: impl FnOnce() -> T) {
        if self.writing.is_none() && self.due.is_some_and(|due| due <= Instant::now()) {
            self.due = None;
            self.write_started = Instant::now();
            let (file, data) = (self.file.clone(), data());
            let write = tokio::task::spawn_blocking(move || file.save(&data));
            self.writing = Some(write);
        }
    }

    /// Writes pending changes; returns the failure, if any, for the drain.
    pub(crate) async fn finish(mut self, data: T) -> Vec<String> {
        if self.writing.is_some() {
            self.wait().await;
        }
        if self.due.is_none() {
            return Vec::new();
        }
        let file = self.file.clone();
        let written = tokio::task::spawn_blocking(move || file.save(&data)).await;
        let error = match written {
            Ok(Ok(())) => return Vec::new(),
            Ok(Err(error)) => polylet_kit::report(&error),
            Err(error) => error.to_string(),
        };
        vec![format!("state not persisted: {error}")]
    }
}

/// The interval after a write that took this long.
fn write_interval(took: Duration) -> Duration {
    (took * INTERVALS_PER_WRITE).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_as_they_were_written() {
        let json = r#"{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-02T03:04:05Z"}"#;
        let status: SharedStatus = serde_json::from_str(json).unwrap();
        let stored = PersistedStatuses {
            statuses: BTreeMap::from([("u1".into(), status.clone())]),
            ..Default::default()
        };
        let text = serde_json::to_string(&stored).unwrap();
        let restored: PersistedStatuses = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&restored).unwrap(), text);
        assert_eq!(restored.statuses["u1"], status);
    }

    #[test]
    fn slow_writes_are_less_frequent() {
        let cases = [(0, 100), (2, 100), (6, 300), (20, 1000), (60_000, 1000)];
        for (took, interval) in cases {
            let (took, interval) = (Duration::from_millis(took), Duration::from_millis(interval));
            assert_eq!(write_interval(took), interval, "{took:?}");
        }
    }
}
