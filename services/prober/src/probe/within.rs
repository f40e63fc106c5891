//! The time of an attempt.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::core::types::Observation;

/// A deadline noticed this much too late says that this process was late, not the container.
const OUR_DELAY: Duration = Duration::from_millis(100);

/// Past its time an attempt is a failure, unless the prober itself was held up.
pub(crate) async fn within(
    limit: Duration,
    attempt: impl Future<Output = Observation>,
) -> Observation {
    let begun = Instant::now();
    match timeout(limit, attempt).await {
        Ok(said) => said,
        Err(_) => judge(limit, begun.elapsed()),
    }
}

pub(crate) fn judge(limit: Duration, took: Duration) -> Observation {
    let late = took.saturating_sub(limit);
    if late > OUR_DELAY {
        return Observation::Unknown(format!("the prober was held up for {late:?}"));
    }
    Observation::Failure(format!("no answer within {limit:?}"))
}
