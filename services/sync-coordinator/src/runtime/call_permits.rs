//! Limits of concurrent calls to the runtime that are not part of a pod's start.
//!
//! As with [`core::start_limiter`](crate::core::start_limiter), a call that takes long no longer
//! counts: network plugins that hang must not keep other pods from being stopped and removed.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::failure;
use crate::core::step::StepFailure;

/// How long a call counts as work under way.
const ACTIVE_TIME: Duration = Duration::from_secs(10);
/// The bound of all calls in flight, as a multiple of the permits.
const MAX_IN_FLIGHT: usize = 10;

/// Permits for one kind of call.
pub struct CallPermits {
    active: Semaphore,
    in_flight: Semaphore,
}

impl CallPermits {
    /// This many calls at the same time, apart from those that take long.
    pub fn new(permits: usize) -> Self {
        CallPermits {
            active: Semaphore::new(permits),
            in_flight: Semaphore::new(permits * MAX_IN_FLIGHT),
        }
    }

    /// Makes the call under a permit.
    pub async fn run<T>(&self, call: impl Future<Output = T>) -> Result<T, StepFailure> {
        let draining = |_| failure("Draining", "the process is shutting down");
        let _in_flight = self.in_flight.acquire().await.map_err(draining)?;
        let active = self.active.acquire().await.map_err(draining)?;
        let mut call = pin!(call);
        match tokio::time::timeout(ACTIVE_TIME, &mut call).await {
            Ok(result) => Ok(result),
            Err(_) => {
                drop(active);
                Ok(call.await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use futures::future::{join_all, pending};
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_delay_others_and_stop_none() {
        let permits = CallPermits::new(2);
        let hung = join_all((0..6).map(|_| permits.run(pending::<()>())));
        let started = Instant::now();
        tokio::select! {
            biased;
            _ = hung => unreachable!("the calls hang"),
            done = permits.run(async { 7 }) => assert_eq!(done, Ok(7)),
        }
        assert_eq!(started.elapsed().as_secs(), 30, "three pairs before it");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_flight_are_bounded() {
        let permits = CallPermits::new(2);
        let started = Rc::new(Cell::new(0));
        let call = || async {
            started.set(started.get() + 1);
            pending::<()>().await;
        };
        let hung = join_all((0..100).map(|_| permits.run(call())));
        let waited = timeout(Duration::from_secs(3_600), hung).await;
        assert!(waited.is_err());
        assert_eq!(started.get(), 20);
    }
}
