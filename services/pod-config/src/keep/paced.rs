//! What the cluster said, written a little after it changed, and not for each change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylet_kit::CancellationToken;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::File;
use crate::core::cluster::kept::VERSION;

/// What matters after a crash is on disk so soon …
const SOON: Duration = Duration::from_millis(100);
/// … and what only helps.
const LATER: Duration = Duration::from_secs(5);
/// Between two writes there is a pause of ten times what the last one took: writing costs a tenth
/// of the time at most, and a pod that has just come is soon safe.
const SHARE: u32 = 10;
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// One kept file. Clones share it. What is written is asked for when it is, so that no copy of it
/// is held at rest.
#[derive(Clone)]
pub(crate) struct Paced {
    file: File,
    due: Arc<watch::Sender<Option<Instant>>>,
    ended: Arc<watch::Sender<bool>>,
}

impl Paced {
    pub(crate) fn new(path: PathBuf) -> Paced {
        Paced {
            file: File::new(path, VERSION),
            due: Arc::new(watch::Sender::new(None)),
            ended: Arc::new(watch::Sender::new(false)),
        }
    }

    /// What a former life has kept. A file that cannot be used is put aside.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Option<T> {
        self.file.load()
    }

    /// Something changed that matters.
    pub(crate) fn soon(&self) {
        self.due(SOON);
    }

    /// Something changed.
    pub(crate) fn later(&self) {
        self.due(LATER);
    }

    fn due(&self, after: Duration) {
        let at = Instant::now() + after;
        self.due.send_if_modified(|due| {
            let sooner = due.is_none_or(|due| at < due);
            if sooner {
                *due = Some(at);
            }
            sooner
        });
    }

    /// Writes until the drain what `make` gives.
    pub(crate) async fn run<T: Serialize + Send + 'static>(
        self,
        make: impl Fn() -> T,
        drain: CancellationToken,
    ) {
        let mut changes = self.due.subscribe();
        loop {
            let due = *changes.borrow_and_update();
            tokio::select! {
                () = drain.cancelled() => break,
                _ = changes.changed() => continue,
                () = until(due) => {}
            }
            self.due.send_replace(None);
            let begun = Instant::now();
            let pause = match self.file.save::<T>(make()).await {
                Ok(()) => (begun.elapsed() * SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
                Err(error) => {
                    tracing::warn!("{error}");
                    self.due(RETRY);
                    RETRY
                }
            };
            tokio::select! {
                () = drain.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        let left = self.due.borrow().is_some();
        if left && let Err(error) = self.file.save::<T>(make()).await {
            tracing::warn!("{error}");
        }
        self.ended.send_replace(true);
    }

    /// Waits, after the drain, until the last is written.
    pub(crate) async fn finish(&self) {
        // An error would mean that the sender is gone, and it is ours.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
