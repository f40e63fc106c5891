//! The last accepted set of a source, written outside of the way from a file to its pod.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylet_kit::CancellationToken;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::File;
use crate::core::kept::{Kept, VERSION};

/// After a failed write.
const RETRY: Duration = Duration::from_secs(5);
/// A disk that takes longer must not hold the pods up.
const PATIENCE: Duration = Duration::from_secs(2);

/// One kept file. Clones share it. Only the latest set is written.
#[derive(Clone)]
pub struct AtOnce {
    file: File,
    wanted: watch::Sender<Arc<Kept>>,
    saved: watch::Sender<Arc<Kept>>,
}

impl AtOnce {
    /// Keeps at `path`.
    pub fn new(path: PathBuf) -> AtOnce {
        let nothing = Arc::new(Kept::default());
        AtOnce {
            file: File::new(path, VERSION),
            wanted: watch::Sender::new(nothing.clone()),
            saved: watch::Sender::new(nothing),
        }
    }

    /// What a former life has kept of the same node and path. A file that cannot be used is put
    /// aside: the node goes on with what its sources say.
    pub fn load(&self, of: &str) -> Kept {
        let kept = Arc::new(self.file.load::<Kept>().unwrap_or_default());
        self.wanted.send_replace(kept.clone());
        self.saved.send_replace(kept.clone());
        if kept.of == of {
            Kept::clone(&kept)
        } else {
            Kept::default()
        }
    }

    /// Wants a set kept; a set that is kept already costs nothing.
    pub fn put(&self, kept: Kept) {
        self.wanted.send_if_modified(|wanted| {
            let changed = **wanted != kept;
            if changed {
                *wanted = Arc::new(kept);
            }
            changed
        });
    }

    /// Waits (not for ever) until what was put last is on disk.
    pub async fn saved(&self) {
        let wanted = self.wanted.borrow().clone();
        let mut saved = self.saved.subscribe();
        let on_disk = saved.wait_for(|saved| Arc::ptr_eq(saved, &wanted));
        if timeout(PATIENCE, on_disk).await.is_err() {
            tracing::warn!(path = %self.file.path().display(), "going on before the last accepted set is on disk");
        }
    }

    /// Writes until the drain.
    pub async fn run(self, drain: CancellationToken) {
        let mut wanted = self.wanted.subscribe();
        loop {
            tokio::select! {
                () = drain.cancelled() => return,
                changed = wanted.changed() => if changed.is_err() { return },
            }
            while let Err(error) = self.save().await {
                tracing::warn!("{error}");
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = sleep(RETRY) => {}
                }
            }
        }
    }

    /// Writes what is not yet written; tells what could not be.
    pub async fn finish(&self) -> Vec<String> {
        self.save().await.err().into_iter().collect()
    }

    async fn save(&self) -> Result<(), String> {
        let wanted = self.wanted.borrow().clone();
        if Arc::ptr_eq(&wanted, &self.saved.borrow()) {
            return Ok(());
        }
        self.file.save::<Kept>(wanted.clone()).await?;
        self.saved.send_replace(wanted);
        Ok(())
    }
}
