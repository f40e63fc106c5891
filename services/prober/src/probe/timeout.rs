//! The time limit of an attempt, without the time in which the prober itself was not running.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::core::types::ProbeOutput;

/// The limit is divided into this many intervals.
const INTERVALS: u32 = 8;

/// When an interval ends later than this, the process was stopped or had no CPU: the interval does
/// not count.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// Awaits an attempt for at most `limit`, then returns `timed_out`. Intervals in which the prober was
/// delayed do not count; after too many of them the result is unknown. An attempt that ends within
/// the first interval costs one timer.
pub(crate) async fn with_timeout(
    limit: Duration,
    attempt: impl Future<Output = ProbeOutput>,
    timed_out: impl FnOnce() -> ProbeOutput,
) -> ProbeOutput {
    let mut attempt = pin!(attempt);
    let mut counted = 0;
    for _ in 0..3 * INTERVALS {
        let end = Instant::now() + limit / INTERVALS;
        tokio::select! {
            // A response that has arrived counts, even when it is read late.
            biased;
            output = attempt.as_mut() => return output,
            () = sleep_until(end) => {}
        }
        counted += u32::from(end.elapsed() < MAX_DELAY);
        if counted == INTERVALS {
            return timed_out();
        }
    }
    ProbeOutput::Unknown("the prober was delayed repeatedly".to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn late() -> ProbeOutput {
        ProbeOutput::Failure("late".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_without_a_response_fails_at_the_limit() {
        let began = Instant::now();
        assert_eq!(with_timeout(SECOND, pending(), late).await, late());
        let took = began.elapsed();
        assert!(took >= SECOND && took < SECOND + MAX_DELAY, "{took:?}");
    }

    /// The container needs 900 ms of its second; the prober is delayed at some point of it.
    #[tokio::test(start_paused = true)]
    async fn delay_of_the_prober_does_not_count() {
        for (after, delay) in [(0, 300), (300, 600), (400, 601), (50, 5000), (880, 400)] {
            let response = async {
                for _ in 0..90 {
                    sleep(Duration::from_millis(10)).await;
                }
                ProbeOutput::Success
            };
            let attempt = tokio::spawn(with_timeout(SECOND, response, late));
            sleep(Duration::from_millis(after)).await;
            // Time passes without any task running.
            advance(Duration::from_millis(delay)).await;
            let output = attempt.await.unwrap();
            assert_eq!(output, ProbeOutput::Success, "{delay} ms after {after} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn result_is_unknown_when_the_prober_is_always_delayed() {
        let attempt = tokio::spawn(with_timeout(SECOND, pending(), late));
        while !attempt.is_finished() {
            advance(Duration::from_millis(400)).await;
            tokio::task::yield_now().await;
        }
        let output = attempt.await.unwrap();
        assert!(matches!(output, ProbeOutput::Unknown(_)), "{output:?}");
    }
}
