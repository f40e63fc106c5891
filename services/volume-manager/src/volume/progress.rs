//! The progress of a change of ownership, which is reported when it takes long.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// When the first report is due, as upstream.
const FIRST: Duration = Duration::from_secs(30);
/// The period of further reports, as upstream.
const PERIOD: Duration = Duration::from_secs(60);

/// The progress of one operation. Clones share it.
#[derive(Debug, Clone)]
pub struct OwnershipProgress {
    files: Arc<AtomicU64>,
    started_at: watch::Sender<Option<Instant>>,
    first: Duration,
    period: Duration,
}

impl Default for OwnershipProgress {
    fn default() -> Self {
        Self::with_periods(FIRST, PERIOD)
    }
}

/// The change is in progress until this is dropped.
#[derive(Debug)]
pub struct OwnershipChange<'a>(&'a OwnershipProgress);

impl OwnershipProgress {
    /// With other periods.
    pub fn with_periods(first: Duration, period: Duration) -> Self {
        Self {
            files: Arc::default(),
            started_at: watch::Sender::default(),
            first,
            period,
        }
    }

    /// Starts the change.
    pub fn begin(&self) -> OwnershipChange<'_> {
        self.started_at.send_replace(Some(Instant::now()));
        OwnershipChange(self)
    }

    /// Sets the number of files processed.
    pub fn set_files(&self, files: u64) {
        self.files.store(files, Ordering::Relaxed);
    }

    /// The number of files processed.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Resolves when the nth report is due, counted from zero.
    pub async fn due(&self, nth: u32) {
        let mut started_at = self.started_at.subscribe();
        loop {
            let since = *started_at.borrow_and_update();
            let due = async {
                match since {
                    Some(since) => sleep_until(since + self.first + self.period * nth).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                // The sender is a field of `self`.
                Ok(()) = started_at.changed() => {}
                () = due => return,
            }
        }
    }
}

impl Drop for OwnershipChange<'_> {
    fn drop(&mut self) {
        self.0.started_at.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reports_are_due_while_the_change_is_in_progress() {
        let moment = Duration::from_millis(1);
        let progress = OwnershipProgress::with_periods(moment, moment);
        let not_due = |progress: OwnershipProgress| async move {
            tokio::time::timeout(moment * 30, progress.due(1)).await
        };
        assert!(not_due(progress.clone()).await.is_err());
        {
            let _change = progress.begin();
            progress.set_files(1);
            progress.due(0).await;
            progress.due(1).await;
            assert_eq!(progress.files(), 1);
        }
        assert!(not_due(progress.clone()).await.is_err());
    }
}
