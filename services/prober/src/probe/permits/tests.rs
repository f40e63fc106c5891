//! Attempts that hang beside those of a neighbour, on a paused clock.

use std::future::pending;

use tokio::task::yield_now;
use tokio::time::Instant;

use super::super::{CONNECTION_LIMITS, EXEC_LIMITS, with_permit};
use super::*;
use crate::core::types::ProbeOutput;

/// The shortest period of a probe.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts attempts that never end, and lets them take their permits.
async fn hang(permits: &AttemptPermits, pods: impl Iterator<Item = PodUid>) {
    for pod in pods {
        let permits = permits.clone();
        tokio::task::spawn_local(async move {
            with_permit(&permits, &pod, pending()).await;
        });
    }
    yield_now().await;
}

/// How long an attempt that takes no time waits for its permit.
async fn wait(permits: &AttemptPermits, pod: &str) -> Duration {
    let began = Instant::now();
    let succeeds = async { ProbeOutput::Success };
    with_permit(permits, &pod.into(), succeeds).await;
    began.elapsed()
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn hanging_attempts_of_one_pod_do_not_delay_another() {
    for limits in [EXEC_LIMITS, CONNECTION_LIMITS] {
        let permits = AttemptPermits::new(limits);
        hang(&permits, (0..200).map(|_| "hostile".into())).await;
        for _ in 0..3 {
            assert_eq!(wait(&permits, "neighbour").await, Duration::ZERO);
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Attempts of 200 pods hang. Once each is found to be slow, they delay only each other.
#[tokio::test(flavor = "local", start_paused = true)]
async fn hanging_attempts_of_many_pods_do_not_delay_another() {
    let permits = AttemptPermits::new(EXEC_LIMITS);
    let pods = || (0..200).map(|pod| PodUid::from(pod.to_string()));
    for pod in pods() {
        permits.set_slow(&pod, true);
    }
    hang(&permits, pods()).await;
    for _ in 0..3 {
        assert_eq!(wait(&permits, "neighbour").await, Duration::ZERO);
        tokio::time::sleep(PERIOD).await;
    }
    // The slow ones, too, have started by then.
    let slow = wait(&permits, "199").await;
    assert!(slow <= 5 * PERIOD, "{slow:?}");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn an_attempt_that_overruns_makes_its_pod_slow_and_a_short_one_makes_it_fast() {
    let permits = AttemptPermits::new(EXEC_LIMITS);
    let pod = PodUid::from("pod");
    let taking = |time: Duration| {
        let permits = permits.clone();
        let attempt = async move {
            tokio::time::sleep(time).await;
            ProbeOutput::Success
        };
        async move { with_permit(&permits, &"pod".into(), attempt).await }
    };
    for (time, next) in [
        (MAX_PERMIT_TIME * 2, SLOW_PERMIT_TIME),
        (MAX_PERMIT_TIME / 2, MAX_PERMIT_TIME),
    ] {
        let (_, duration) = taking(time).await;
        assert_eq!(duration, time);
        assert_eq!(permits.acquire(&pod).await.time(), next);
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn abandoned_waits_take_no_permit() {
    let permits = AttemptPermits::new(EXEC_LIMITS);
    let pod = PodUid::from("pod");
    let held = [permits.acquire(&pod).await, permits.acquire(&pod).await];
    for _ in 0..10 {
        let wait = tokio::time::timeout(PERIOD, permits.acquire(&pod));
        assert!(wait.await.is_err());
    }
    drop(held);
    let again = [permits.acquire(&pod).await, permits.acquire(&pod).await];
    assert_eq!(again.len(), EXEC_LIMITS.per_owner);
}
