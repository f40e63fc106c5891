//! How far the change of a volume's group has come: it may take long, and people are told then.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// People are told when it has taken so long, as upstream,
const FIRST: Duration = Duration::from_secs(30);
/// and then again each time when it has gone on for so long.
const AGAIN: Duration = Duration::from_secs(60);

/// One step's. Clones share it.
#[derive(Debug, Clone)]
pub struct Progress {
    files: Arc<AtomicU64>,
    began: watch::Sender<Option<Instant>>,
    first: Duration,
    again: Duration,
}

impl Default for Progress {
    fn default() -> Self {
        Self::paced(FIRST, AGAIN)
    }
}

/// The change goes on as long as this is held.
#[derive(Debug)]
pub struct Under<'a>(&'a Progress);

impl Progress {
    /// With another patience.
    pub fn paced(first: Duration, again: Duration) -> Self {
        Self {
            files: Arc::default(),
            began: watch::Sender::default(),
            first,
            again,
        }
    }

    /// It begins.
    pub fn begin(&self) -> Under<'_> {
        self.began.send_replace(Some(Instant::now()));
        Under(self)
    }

    /// One more file is done.
    pub fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// So many files are done.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Resolves when people are to be told for the nth time, counted from zero.
    pub async fn due(&self, nth: u32) {
        let mut began = self.began.subscribe();
        loop {
            let since = *began.borrow_and_update();
            let due = async {
                match since {
                    Some(since) => sleep_until(since + self.first + self.again * nth).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                // It is ours: somebody sends as long as it is there.
                Ok(()) = began.changed() => {}
                () = due => return,
            }
        }
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.began.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn people_are_told_while_it_goes_on_and_not_after() {
        let moment = Duration::from_millis(1);
        let progress = Progress::paced(moment, moment);
        let not_now = |progress: Progress| async move {
            tokio::time::timeout(moment * 30, progress.due(1)).await
        };
        assert!(not_now(progress.clone()).await.is_err());
        {
            let _under = progress.begin();
            progress.file();
            progress.due(0).await;
            progress.due(1).await;
            assert_eq!(progress.files(), 1);
        }
        assert!(not_now(progress.clone()).await.is_err());
    }
}
