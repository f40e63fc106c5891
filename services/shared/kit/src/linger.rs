//! Work that goes on when the process has drained, beside the next one of its service.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::notify;

/// How long the work may take where the service manager starts the next process only when this one has ended.
const LINGER_TIMEOUT: Duration = Duration::from_secs(3);

/// The work, with its limit.
pub(crate) struct Lingering {
    pub(crate) limit: Duration,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

impl Lingering {
    pub(crate) fn new(limit: Duration, work: impl Future<Output = ()> + 'static) -> Self {
        let limit = if notify::starts_next_process() {
            limit
        } else {
            limit.min(LINGER_TIMEOUT)
        };
        Self {
            limit,
            work: Box::pin(work),
        }
    }

    /// `None` if there is nothing left to do.
    pub(crate) async fn if_unfinished(mut self) -> Option<Self> {
        tokio::select! {
            biased;
            () = &mut self.work => None,
            () = std::future::ready(()) => Some(self),
        }
    }

    /// Until the work is done, or its time is over.
    pub(crate) async fn finish(self) {
        let limit = self.limit;
        tracing::info!(?limit, "finishing what is in progress");
        if tokio::time::timeout(limit, self.work).await.is_err() {
            tracing::warn!(?limit, "ending what is still in progress");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_without_a_service_manager_has_a_short_limit() {
        let none = Lingering::new(Duration::from_secs(600), std::future::ready(()));
        assert_eq!(none.limit, LINGER_TIMEOUT);
        assert!(none.if_unfinished().await.is_none());
        let endless = Lingering::new(Duration::from_millis(10), std::future::pending());
        assert_eq!(endless.limit, Duration::from_millis(10));
        let endless = endless.if_unfinished().await;
        endless.expect("it is not done").finish().await;
    }
}
