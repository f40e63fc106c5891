//! When what changes often is written: a little after it changed, and not for each change.

use std::sync::Arc;
use std::time::Duration;

use polylet_kit::CancellationToken;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

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

/// The pace of one kept file. Clones share it.
#[derive(Clone)]
pub(crate) struct Pace {
    due: Arc<watch::Sender<Option<Instant>>>,
    ended: Arc<watch::Sender<bool>>,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            due: Arc::new(watch::Sender::new(None)),
            ended: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Something changed that matters.
    pub(super) fn soon(&self) {
        self.due(SOON);
    }

    /// Something changed.
    pub(super) fn later(&self) {
        self.due(LATER);
    }

    fn due(&self, after: Duration) {
        self.at(Instant::now() + after);
    }

    /// Something is to be written then.
    pub(super) fn at(&self, at: Instant) {
        self.due.send_if_modified(|due| {
            let sooner = due.is_none_or(|due| at < due);
            if sooner {
                *due = Some(at);
            }
            sooner
        });
    }

    /// Writes until the drain.
    pub(super) async fn run(
        self,
        mut write: impl AsyncFnMut() -> Result<(), String>,
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
            let pause = match write().await {
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
        if left && let Err(error) = write().await {
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
