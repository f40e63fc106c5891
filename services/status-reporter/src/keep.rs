//! Statuses on disk, for the next life of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_kit::kept::{self, KeptError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const VERSION: u32 = 1;
/// Changes that come within this time of each other are written once,
const GATHER: Duration = Duration::from_millis(100);
/// and a file that takes long to write is written more seldom: so many times as long lies between,
const PER_WRITE: u32 = 10;
/// up to this.
const GATHER_MOST: Duration = Duration::from_secs(1);

/// What the file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The last status of each pod, by uid.
    pub(crate) statuses: BTreeMap<String, Arc<PodStatus>>,
    /// Pods that were Ready once: their start is not traced again.
    pub(crate) started: BTreeSet<String>,
}

/// The file, and what is still to be written to it.
pub(crate) struct Keeper<T> {
    what: PhantomData<T>,
    path: PathBuf,
    due: Option<Instant>,
    gather: Duration,
    began: Instant,
    writing: Option<JoinHandle<Result<(), KeptError>>>,
}

impl<T: Serialize + DeserializeOwned + Default + Send + 'static> Keeper<T> {
    /// Opens the file and reads what was kept. A broken file costs nothing but
    /// the times of past changes: it is set aside.
    pub(crate) fn open(path: PathBuf) -> (Self, T) {
        let kept: Option<T> = kept::load_or_set_aside(&path, VERSION, "what was kept is not used");
        (
            Self {
                what: PhantomData,
                path,
                due: None,
                gather: GATHER,
                began: Instant::now(),
                writing: None,
            },
            kept.unwrap_or_default(),
        )
    }

    /// Something changed.
    pub(crate) fn changed(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + self.gather);
    }

    /// Resolves when it is time to write, or a write has ended.
    pub(crate) async fn wait(&mut self) {
        match (&mut self.writing, self.due) {
            (Some(writing), _) => {
                let written = writing.await;
                self.writing = None;
                self.gather = gather(self.began.elapsed());
                match written {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => self.failed(&error),
                    Err(error) => self.failed(&error),
                }
            }
            (None, Some(due)) => tokio::time::sleep_until(due).await,
            (None, None) => std::future::pending().await,
        }
    }

    fn failed(&mut self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!("statuses are not kept: {}", polylet_kit::report(error));
        // Tried again with the next change, which is soon enough.
    }

    /// Starts a write if one is due and none is under way.
    pub(crate) fn write_if_due(&mut self, kept: impl FnOnce() -> T) {
        if self.writing.is_none() && self.due.is_some_and(|due| due <= Instant::now()) {
            self.due = None;
            self.began = Instant::now();
            let (path, data) = (self.path.clone(), kept());
            self.writing = Some(tokio::task::spawn_blocking(move || {
                kept::save(&path, VERSION, &data)
            }));
        }
    }

    /// Writes what is not written yet; tells what could not be.
    pub(crate) async fn finish(mut self, data: T) -> Vec<String> {
        if self.writing.is_some() {
            self.wait().await;
        }
        if self.due.is_none() {
            return Vec::new();
        }
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || kept::save(&path, VERSION, &data)).await {
            Ok(Ok(())) => Vec::new(),
            Ok(Err(error)) => vec![format!(
                "statuses are not kept: {}",
                polylet_kit::report(&error)
            )],
            Err(error) => vec![format!("statuses are not kept: {error}")],
        }
    }
}

/// How long changes gather after a write that took so long.
fn gather(took: Duration) -> Duration {
    (took * PER_WRITE).clamp(GATHER, GATHER_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_written_more_seldom() {
        let cases = [(0, 100), (10, 100), (30, 300), (100, 1000), (60_000, 1000)];
        for (took, gathers) in cases {
            let (took, gathers) = (Duration::from_millis(took), Duration::from_millis(gathers));
            assert_eq!(gather(took), gathers, "{took:?}");
        }
    }
}
