//! Retrying requests to the API server: one loop for all controllers of the node.
//!
//! - [`Retry`] is the loop: back-off with jitter, the server's `Retry-After`, new credentials after
//!   a 401, one log line per distinct error, and one when requests succeed again.
//! - [`RetryTimer`] is only its clock, for callers that report failures in their own way.

use std::error::Error;
use std::time::Duration;

use kube::Client;
use polylet_schedule::Backoff;
use tokio::time::{Instant, sleep_until};

use crate::{ApiConnection, ApiErrorKind};

/// The error of one attempt, as [`Retry`] needs it.
pub trait RequestError: Error + 'static {
    /// The kind of the failed request; `None` for a failure on the node's own side.
    fn kind(&self) -> Option<ApiErrorKind>;
}

impl RequestError for kube::Error {
    fn kind(&self) -> Option<ApiErrorKind> {
        Some(ApiErrorKind::from_error(self))
    }
}

/// When the next attempt is due: delays double from the initial one to the longest, each stretched
/// by up to a half at random, so that a thousand nodes do not come back at the same time.
#[derive(Debug)]
pub struct RetryTimer {
    backoff: Backoff,
    due: Option<Instant>,
}

impl RetryTimer {
    /// A timer without failures: the first attempt is due at once.
    pub fn new(initial: Duration, max: Duration) -> RetryTimer {
        RetryTimer {
            backoff: Backoff::new(initial, max),
            due: None,
        }
    }

    /// Records a failure and the delay that the server asked for, if any. Returns the delay before
    /// the next attempt.
    pub fn failed(&mut self, retry_after: Option<Duration>) -> Duration {
        let jittered = self.backoff.next_delay_with_jitter(random() / 2.0);
        let delay = jittered.max(retry_after.unwrap_or_default());
        self.due = Some(Instant::now() + delay);
        delay
    }

    /// Records a success: the next failure counts as the first.
    pub fn succeeded(&mut self) {
        self.backoff.reset();
        self.due = None;
    }

    /// Waits until the next attempt is due: at once where nothing has failed. May be cancelled and
    /// called again without losing the delay.
    pub async fn wait(&mut self) {
        if let Some(due) = self.due {
            sleep_until(due).await;
            self.due = None;
        }
    }
}

/// The retry loop of one operation against the API server.
///
/// A controller either hands the whole loop over with [`Retry::run`], or keeps its own `select!`
/// and calls [`Retry::wait`], [`Retry::failed`] and [`Retry::succeeded`].
pub struct Retry {
    operation: &'static str,
    connection: ApiConnection,
    timer: RetryTimer,
    /// The error logged last, while the operation fails.
    last_error: Option<String>,
}

impl Retry {
    /// A loop for `operation`, a few words for the log (`renew lease`), on this connection.
    pub fn new(
        operation: &'static str,
        connection: ApiConnection,
        initial: Duration,
        max: Duration,
    ) -> Retry {
        Retry {
            operation,
            connection,
            timer: RetryTimer::new(initial, max),
            last_error: None,
        }
    }

    /// The connection that attempts use.
    pub fn connection(&self) -> &ApiConnection {
        &self.connection
    }

    /// Waits until the next attempt is due: at once where nothing has failed. May be cancelled and
    /// called again without losing the delay.
    pub async fn wait(&mut self) {
        self.timer.wait().await;
    }

    /// The same, cut short when the kubeconfig or a certificate changes: the failure may have been
    /// due to the old credentials.
    pub async fn wait_or_new_credentials(&mut self) {
        tokio::select! {
            () = self.timer.wait() => {}
            () = self.connection.credentials_changed() => {}
        }
    }

    /// Records a failure, drops the client if its credentials were rejected, and logs each distinct
    /// error once. Returns the delay before the next attempt.
    pub fn failed(&mut self, error: &impl RequestError) -> Duration {
        let kind = error.kind();
        if kind == Some(ApiErrorKind::Unauthorized) {
            self.connection.invalidate();
        }
        let delay = self.timer.failed(kind.and_then(ApiErrorKind::retry_after));
        let text = polylet_kit::report(error);
        if self.last_error.as_ref() != Some(&text) {
            tracing::warn!(
                operation = self.operation,
                error = text,
                retry_in = ?delay,
                "request to the API server failed; retrying"
            );
            self.last_error = Some(text);
        }
        delay
    }

    /// Records a success, and logs it after a failure.
    pub fn succeeded(&mut self) {
        self.timer.succeeded();
        if self.last_error.take().is_some() {
            tracing::info!(
                operation = self.operation,
                "request to the API server succeeded after failures"
            );
        }
    }

    /// Repeats `attempt` until it succeeds. Every error is retried, as permissions and objects may
    /// change: an attempt returns outcomes that end the loop, such as a missing object, as `Ok`.
    pub async fn run<T, E: RequestError>(
        &mut self,
        mut attempt: impl AsyncFnMut(Client) -> Result<T, E>,
    ) -> T {
        loop {
            self.wait().await;
            let client = self.connection.ready().await;
            match attempt(client).await {
                Ok(value) => {
                    self.succeeded();
                    return value;
                }
                Err(error) => {
                    self.failed(&error);
                }
            }
        }
    }
}

/// A random number from 0 up to 1, for jitter. The standard library seeds each of its hashers at
/// random.
pub fn random() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let drawn = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::ClientConfig;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[derive(Debug, thiserror::Error)]
    #[error("attempt failed")]
    struct Failure(Option<ApiErrorKind>);

    impl RequestError for Failure {
        fn kind(&self) -> Option<ApiErrorKind> {
            self.0
        }
    }

    fn retry(directory: &tempfile::TempDir) -> Retry {
        let kubeconfig = directory.path().join("kubeconfig");
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
            users: [{name: u, user: {token: t}}]\n\
            clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n";
        std::fs::write(&kubeconfig, text).unwrap();
        let connection = ApiConnection::new(ClientConfig::new(kubeconfig, "test"));
        Retry::new("test requests", connection, MS(100), MS(400))
    }

    fn between(elapsed: Duration, least: u64) -> bool {
        elapsed >= MS(least) && elapsed <= MS(least).mul_f64(1.5) + MS(5)
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut timer = RetryTimer::new(MS(100), MS(400));
        for least in [0, 100, 200, 400, 400] {
            let begun = Instant::now();
            timer.wait().await;
            assert!(between(begun.elapsed(), least), "{least}");
            timer.failed(None);
        }
        timer.succeeded();
        let begun = Instant::now();
        timer.wait().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(timer.failed(None) <= MS(150));
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_can_ask_for_a_longer_delay() {
        let mut timer = RetryTimer::new(MS(100), MS(400));
        assert_eq!(timer.failed(Some(MS(5000))), MS(5000));
        let begun = Instant::now();
        timer.wait().await;
        assert!(begun.elapsed() >= MS(5000));
        assert!(timer.failed(Some(MS(1))) >= MS(200));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_keeps_the_delay() {
        let mut timer = RetryTimer::new(MS(1000), MS(1000));
        timer.failed(None);
        let begun = Instant::now();
        assert!(timeout(MS(10), timer.wait()).await.is_err());
        timer.wait().await;
        assert!(begun.elapsed() >= MS(1000));
    }

    #[tokio::test(start_paused = true)]
    async fn run_repeats_until_an_attempt_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let mut retry = retry(&directory);
        let busy = ApiErrorKind::TooManyRequests(Some(MS(9000)));
        let mut errors = vec![None, Some(busy), Some(ApiErrorKind::Forbidden)];
        let begun = Instant::now();
        let attempts = retry
            .run(async |_client| match errors.pop() {
                Some(kind) => Err(Failure(kind)),
                None => Ok("done"),
            })
            .await;
        assert_eq!(attempts, "done");
        // 100 to 150 ms, 9 s, 400 to 600 ms.
        let elapsed = begun.elapsed();
        assert!(elapsed >= MS(9500) && elapsed <= MS(9800), "{elapsed:?}");
        assert!(retry.last_error.is_none());
        assert!(retry.failed(&Failure(None)) <= MS(150));
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_credentials_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut retry = retry(&directory);
        retry.connection().client().await.unwrap();
        retry.failed(&Failure(Some(ApiErrorKind::Forbidden)));
        assert!(retry.connection().current().is_some());
        retry.failed(&Failure(Some(ApiErrorKind::Unauthorized)));
        assert!(retry.connection().current().is_none());
    }
}
