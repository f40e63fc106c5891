use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::HarnessError;

/// How long any condition may take before a test gives up: POLYLET_TEST_PATIENCE seconds, else 60.
/// One knob for all waits: slow machines set it once.
pub fn patience() -> Duration {
    let set = std::env::var("POLYLET_TEST_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok());
    Duration::from_secs(set.unwrap_or(60))
}

/// What a look at the world gave.
pub enum Look<T> {
    /// The condition holds.
    Done(T),
    /// Not yet; what was seen instead, for the error.
    NotYet(String),
}

/// Looks again and again until the condition holds or patience ends.
///
/// # Errors
/// [`HarnessError::Patience`] with what was seen last.
pub async fn until<T, F, Fut>(what: impl Display, mut look: F) -> Result<T, HarnessError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Look<T>>,
{
    let limit = patience();
    let start = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        let last = match look().await {
            Look::Done(value) => return Ok(value),
            Look::NotYet(last) => last,
        };
        if start.elapsed() >= limit {
            let seconds = limit.as_secs();
            return Err(HarnessError::Patience {
                what: what.to_string(),
                seconds,
                last,
            });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// [`until`] for code outside the runtime.
#[allow(clippy::disallowed_methods)] // There is no runtime to sleep on where things are dropped.
pub fn until_blocking(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if look() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "cleaning up happens outside any runtime"
        )]
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
