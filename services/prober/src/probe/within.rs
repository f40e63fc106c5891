//! The time of an attempt: what the prober loses itself is no part of it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::core::types::Observation;

/// The clock is looked at so many times in an attempt's time.
const LOOKS: u32 = 8;

/// A look that comes so late tells that this process was held up, stopped or without a processor:
/// what passed before it is no time of the attempt's.
const OUR_DELAY: Duration = Duration::from_millis(50);

/// Past its time an attempt is what `late` says. Time that the prober itself lost does not count; when
/// it loses too much, the attempt says nothing. One that ends before the first look costs one timer.
pub(crate) async fn within(
    limit: Duration,
    attempt: impl Future<Output = Observation>,
    late: impl FnOnce() -> Observation,
) -> Observation {
    let mut attempt = pin!(attempt);
    let mut counted = 0;
    for _ in 0..3 * LOOKS {
        let look = Instant::now() + limit / LOOKS;
        tokio::select! {
            // What has arrived counts, even when it is seen late.
            biased;
            said = attempt.as_mut() => return said,
            () = sleep_until(look) => {}
        }
        counted += u32::from(look.elapsed() < OUR_DELAY);
        if counted == LOOKS {
            return late();
        }
    }
    Observation::Unknown("the prober was held up again and again".to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn late() -> Observation {
        Observation::Failure("late".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_in_time_is_a_failure() {
        let begun = Instant::now();
        assert_eq!(within(SECOND, pending(), late).await, late());
        let took = begun.elapsed();
        assert!(took >= SECOND && took < SECOND + OUR_DELAY, "{took:?}");
    }

    /// The container needs 900 ms of the second it has; the prober is held up at any moment of it.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_held_up_blames_nobody() {
        for (after, held_up) in [(0, 300), (300, 600), (400, 601), (50, 5000), (880, 400)] {
            let answer = async {
                for _ in 0..90 {
                    sleep(Duration::from_millis(10)).await;
                }
                Observation::Success
            };
            let attempt = tokio::spawn(within(SECOND, answer, late));
            sleep(Duration::from_millis(after)).await;
            // The clock goes on, and nobody runs.
            advance(Duration::from_millis(held_up)).await;
            let said = attempt.await.unwrap();
            assert_eq!(said, Observation::Success, "{held_up} ms after {after} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_never_runs_in_time_says_nothing() {
        let attempt = tokio::spawn(within(SECOND, pending(), late));
        while !attempt.is_finished() {
            advance(Duration::from_millis(400)).await;
            tokio::task::yield_now().await;
        }
        let said = attempt.await.unwrap();
        assert!(matches!(said, Observation::Unknown(_)), "{said:?}");
    }
}
