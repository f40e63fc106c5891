use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::HarnessError;

/// The timeout of all waits: `POLYLET_TEST_PATIENCE` seconds, 60 by default. Raise it on a slow
/// machine.
pub fn timeout() -> Duration {
    let set = std::env::var("POLYLET_TEST_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(60))
}

/// The result of checking a condition.
pub enum Poll<T> {
    /// The condition holds.
    Ready(T),
    /// The condition does not hold yet; the observed state, for the error text.
    Pending(String),
}

/// Polls until the condition holds or the [`timeout`] expires.
///
/// # Errors
/// [`HarnessError::Timeout`] with the last observation.
pub async fn until<T, F, Fut>(what: impl Display, mut poll: F) -> Result<T, HarnessError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Poll<T>>,
{
    let limit = timeout();
    let start = Instant::now();
    let mut delay = Duration::from_millis(5);
    loop {
        let last = match poll().await {
            Poll::Ready(value) => return Ok(value),
            Poll::Pending(last) => last,
        };
        if start.elapsed() >= limit {
            let seconds = limit.as_secs();
            return Err(HarnessError::Timeout {
                what: what.to_string(),
                seconds,
                last,
            });
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_millis(100));
    }
}

/// Like [`until`], for code outside the async runtime.
#[allow(clippy::disallowed_methods)] // There is no async runtime in `Drop`.
pub fn until_blocking(limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut delay = Duration::from_millis(2);
    loop {
        if is_done() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "cleanup runs outside any async runtime"
        )]
        std::thread::sleep(delay);
        delay = (delay * 2).min(Duration::from_millis(50));
    }
}
