//! Limits of concurrent calls to the runtime that are not part of a pod's start.
//!
//! As with [`core::start_limiter`](crate::core::start_limiter), a call that takes long no longer
//! counts: network plugins that hang must not keep other pods from being stopped and removed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::failure;
use super::metrics::limits::{LimitedCalls, set_limit};
use crate::core::concurrency_limit::{CallKind, ConcurrencyLimit};
use crate::core::step::StepFailure;

/// How long a call counts as work under way.
const ACTIVE_TIME: Duration = Duration::from_secs(10);
/// How long a call waits for others that go first.
const MAX_YIELD: Duration = Duration::from_secs(10);
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
    /// How many calls wait for a permit or are under way. Watchers are told when there are none.
    unfinished: watch::Sender<usize>,
    /// For the first of the calls that let others go first. They wait in line without permits, which other calls
    /// may need meanwhile.
    turn: Semaphore,
}

/// What a call holds. It counts as work under way as long as it holds the first two.
struct CallPermit<'a> {
    active: SemaphorePermit<'a>,
    unfinished: UnfinishedCall<'a>,
    in_flight: SemaphorePermit<'a>,
}

/// A call that counts as unfinished until this is dropped.
struct UnfinishedCall<'a>(&'a watch::Sender<usize>);

impl<'a> UnfinishedCall<'a> {
    fn new(unfinished: &'a watch::Sender<usize>) -> Self {
        unfinished.send_if_modified(|count| {
            *count += 1;
            false
        });
        UnfinishedCall(unfinished)
    }
}

impl Drop for UnfinishedCall<'_> {
    fn drop(&mut self) {
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
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
            unfinished: watch::Sender::new(0),
            turn: Semaphore::new(1),
        }
    }

    /// Makes a call under a permit. The duration of one that succeeds is measured.
    pub async fn run<T, E>(
        &self,
        kind: CallKind,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, StepFailure> {
        let permit = self.acquire().await?;
        self.run_with(permit, kind, call).await
    }

    /// The same for a call that nothing waits for: those of `others` go first, up to [`MAX_YIELD`].
    pub async fn run_after_others<T, E>(
        &self,
        others: &CallPermits,
        kind: CallKind,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, StepFailure> {
        let limit = Instant::now() + MAX_YIELD;
        let turn = self.turn.acquire().await.map_err(draining)?;
        let mut unfinished = others.unfinished.subscribe();
        // Neither the limit nor the end of the process is an error.
        let _ = tokio::time::timeout_at(limit, unfinished.wait_for(|count| *count == 0)).await;
        let permit = self.acquire().await?;
        drop(turn);
        self.run_with(permit, kind, call).await
    }

    async fn acquire(&self) -> Result<CallPermit<'_>, StepFailure> {
        let unfinished = UnfinishedCall::new(&self.unfinished);
        let in_flight = self.in_flight.acquire().await.map_err(draining)?;
        let active = self.active.acquire().await.map_err(draining)?;
        Ok(CallPermit {
            active,
            unfinished,
            in_flight,
        })
    }

    async fn run_with<T, E>(
        &self,
        permit: CallPermit<'_>,
        kind: CallKind,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, StepFailure> {
        let CallPermit {
            active,
            unfinished,
            in_flight: _in_flight,
        } = permit;
        let started = Instant::now();
        let mut call = pin!(call);
        let Ok(result) = tokio::time::timeout(ACTIVE_TIME, &mut call).await else {
            drop((active, unfinished));
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

fn draining(_: AcquireError) -> StepFailure {
    failure("Draining", "the process is shutting down")
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

    #[tokio::test(start_paused = true)]
    async fn calls_that_nothing_waits_for_go_last_but_go() {
        let stops = CallPermits::new(LimitedCalls::StopSandbox, ConcurrencyLimit::fixed(2));
        let removals = CallPermits::new(LimitedCalls::Remove, ConcurrencyLimit::fixed(2));
        let started = Instant::now();
        let stop = |seconds| {
            stops.run(kind(), async move {
                sleep(Duration::from_secs(seconds)).await;
                Never::Ok(())
            })
        };
        let remove = || async {
            let done = async { Ok::<_, Infallible>(started.elapsed().as_secs()) };
            removals.run_after_others(&stops, kind(), done).await
        };
        let at = |seconds| Ok(Ok(seconds));
        assert_eq!(remove().await, at(0), "nothing else is under way");
        let (_, removed, other) = tokio::join!(
            join_all((0..4).map(|_| stop(1))),
            remove(),
            removals.run(kind(), async { Ok::<_, Infallible>(()) })
        );
        assert_eq!((removed, other), (at(2), Ok(Ok(()))));
        let started_at = started.elapsed().as_secs();
        let (_, removed, other) = tokio::join!(
            join_all((0..40).map(|_| stop(1))),
            join_all([remove(), remove(), remove()]),
            removals.run(kind(), async {
                Ok::<_, Infallible>(started.elapsed().as_secs())
            })
        );
        assert_eq!(other, at(started_at), "none that waits holds a permit");
        assert!(removed.iter().all(|done| *done == at(started_at + 10)));
        let (_, removed) = tokio::join!(timeout(Duration::from_secs(60), stop(3600)), remove());
        assert_eq!(
            removed,
            at(started_at + 30),
            "a stop that hangs no longer counts"
        );
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
