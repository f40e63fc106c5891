//! Limits of concurrent calls to the runtime that are not part of a pod's start.
//!
//! As with [`core::start_limiter`](crate::core::start_limiter), a call that takes long no longer
//! counts: network plugins that hang must not keep other pods from being stopped and removed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::failure;
use super::metrics::limits::{LimitedCalls, set_limit};
use crate::core::concurrency_limit::{CallKind, ConcurrencyLimit};
use crate::core::step::StepFailure;

/// How long a call counts as work under way.
const ACTIVE_TIME: Duration = Duration::from_secs(10);
/// The bound of all calls in flight.
const MAX_IN_FLIGHT: usize = 160;

/// Permits for calls that share a limit.
pub struct CallPermits {
    calls: LimitedCalls,
    limit: RefCell<ConcurrencyLimit>,
    /// The limit that the permits have been made or forgotten for.
    permits: Cell<usize>,
    active: Semaphore,
    in_flight: Semaphore,
}

impl CallPermits {
    /// As many calls at the same time as the limit says, apart from those that take long.
    pub fn new(calls: LimitedCalls, limit: ConcurrencyLimit) -> Self {
        let permits = limit.current();
        set_limit(calls, permits);
        CallPermits {
            calls,
            limit: RefCell::new(limit),
            permits: Cell::new(permits),
            active: Semaphore::new(permits),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
        }
    }

    /// Makes a call under a permit. The duration of one that succeeds is measured.
    pub async fn run<T, E>(
        &self,
        kind: CallKind,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, StepFailure> {
        let draining = |_| failure("Draining", "the process is shutting down");
        let _in_flight = self.in_flight.acquire().await.map_err(draining)?;
        let active = self.active.acquire().await.map_err(draining)?;
        let started = Instant::now();
        let mut call = pin!(call);
        let Ok(result) = tokio::time::timeout(ACTIVE_TIME, &mut call).await else {
            drop(active);
            return Ok(call.await);
        };
        if result.is_ok() {
            let took = SignedDuration::try_from(started.elapsed()).unwrap_or_default();
            let free = self.active.available_permits();
            let at_once = self.permits.get().saturating_sub(free);
            self.limit.borrow_mut().record(kind, took, at_once);
        }
        self.follow_limit(active);
        Ok(result)
    }

    /// Returns a permit, after making or forgetting permits by the limit.
    fn follow_limit(&self, active: SemaphorePermit<'_>) {
        let (limit, permits) = (self.limit.borrow().current(), self.permits.get());
        if limit != permits {
            set_limit(self.calls, limit);
        }
        if limit > permits {
            self.active.add_permits(limit - permits);
            self.permits.set(limit);
        } else if limit < permits {
            active.forget();
            self.permits.set(permits - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::rc::Rc;

    use futures::future::{join_all, pending};
    use tokio::time::{sleep, timeout};

    use super::*;

    type Never = Result<(), Infallible>;

    fn kind() -> CallKind {
        CallKind {
            operation: "StopPodSandbox",
            runtime_class: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_delay_others_and_stop_none() {
        let permits = CallPermits::new(LimitedCalls::Remove, ConcurrencyLimit::fixed(2));
        let hung = join_all((0..6).map(|_| permits.run(kind(), pending::<Never>())));
        let started = Instant::now();
        tokio::select! {
            biased;
            _ = hung => unreachable!("the calls hang"),
            done = permits.run(kind(), async { Ok::<_, Infallible>(7) }) => assert_eq!(done, Ok(Ok(7))),
        }
        assert_eq!(started.elapsed().as_secs(), 30, "three pairs before it");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_flight_are_bounded() {
        let permits = CallPermits::new(LimitedCalls::Remove, ConcurrencyLimit::measured());
        let started = Rc::new(Cell::new(0));
        let call = || async {
            started.set(started.get() + 1);
            pending::<Never>().await
        };
        let hung = join_all((0..1_000).map(|_| permits.run(kind(), call())));
        let waited = timeout(Duration::from_secs(36_000), hung).await;
        assert!(waited.is_err());
        assert_eq!(started.get(), MAX_IN_FLIGHT);
    }

    /// Calls that share a runtime which does so many at once; returns the most that ran at once at the end.
    async fn most_at_once(permits: &CallPermits, capacity: usize) -> usize {
        let (now, most) = (Cell::new(0_usize), Cell::new(0));
        let call = |n: usize| {
            let (now, most) = (&now, &most);
            async move {
                now.set(now.get() + 1);
                if n >= 300 {
                    most.set(most.get().max(now.get()));
                }
                // Shared evenly by those that run when it begins.
                let shared = now.get().div_ceil(capacity).max(1);
                sleep(Duration::from_millis(50) * u32::try_from(shared).unwrap()).await;
                now.set(now.get() - 1);
                Never::Ok(())
            }
        };
        join_all((0..400).map(|n| permits.run(kind(), call(n)))).await;
        most.get()
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_made_and_forgotten_as_the_runtime_is_measured() {
        let permits = CallPermits::new(LimitedCalls::Remove, ConcurrencyLimit::measured());
        let fast = most_at_once(&permits, 16).await;
        assert!((17..=32).contains(&fast), "{fast}");
        let slow = most_at_once(&permits, 1).await;
        assert!((4..=6).contains(&slow), "{slow}");
        assert_eq!(permits.active.available_permits(), permits.permits.get());
    }
}
