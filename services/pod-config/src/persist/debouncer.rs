//! Scheduling of writes: shortly after a change, but not for each change.

use std::sync::Arc;
use std::time::Duration;

use polylet_kit::CancellationToken;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// Delay of changes that are needed after a crash.
const DELAY: Duration = Duration::from_millis(100);
/// Delay of changes that are merely useful after a crash.
const LAZY_DELAY: Duration = Duration::from_secs(5);
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Schedules the writes of one file. Clones share it.
#[derive(Clone)]
pub(crate) struct Debouncer {
    pause_factor: u32,
    due: Arc<watch::Sender<Option<Instant>>>,
    ended: Arc<watch::Sender<bool>>,
}

impl Debouncer {
    /// The pause after a write is this multiple of its duration, so that writing takes a limited part of the time.
    pub(super) fn new(pause_factor: u32) -> Debouncer {
        Debouncer {
            pause_factor,
            due: Arc::new(watch::Sender::new(None)),
            ended: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Schedules a write of a change that is needed after a crash.
    pub(super) fn schedule(&self) {
        self.schedule_after(DELAY);
    }

    /// Schedules a write of a change that is merely useful after a crash.
    pub(super) fn schedule_lazy(&self) {
        self.schedule_after(LAZY_DELAY);
    }

    fn schedule_after(&self, delay: Duration) {
        self.schedule_at(Instant::now() + delay);
    }

    /// Schedules a write at `at` or earlier.
    pub(super) fn schedule_at(&self, at: Instant) {
        self.due.send_if_modified(|due| {
            let sooner = due.is_none_or(|due| at < due);
            if sooner {
                *due = Some(at);
            }
            sooner
        });
    }

    /// Writes when due, until the drain.
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
                () = sleep_until_opt(due) => {}
            }
            self.due.send_replace(None);
            let started = Instant::now();
            let pause = match write().await {
                Ok(()) => (started.elapsed() * self.pause_factor).clamp(MIN_PAUSE, MAX_PAUSE),
                Err(error) => {
                    tracing::debug!(error, "failed to write state; retrying");
                    self.schedule_after(RETRY_DELAY);
                    RETRY_DELAY
                }
            };
            tokio::select! {
                () = drain.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        let pending = self.due.borrow().is_some();
        if pending && let Err(error) = write().await {
            tracing::warn!(error, "failed to write state before exit");
        }
        self.ended.send_replace(true);
    }

    /// Waits, after the drain, for the last write.
    pub(crate) async fn flush(&self) {
        // Fails only without a sender, and `self` holds it.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

async fn sleep_until_opt(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
