//! How long images of each pod were being pulled, which is no part of upstream's time to start a pod.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// The times of all pods.
#[derive(Clone, Debug, Default)]
pub struct PullTimes {
    pods: Rc<RefCell<BTreeMap<String, PodPulls>>>,
}

#[derive(Debug, Default)]
struct PodPulls {
    in_flight: usize,
    /// When the first of the pulls in flight began.
    since: Option<Instant>,
    total: Duration,
}

/// A pull in flight; it ends on drop.
#[derive(Debug)]
pub struct PullTime {
    times: PullTimes,
    uid: String,
}

impl PullTimes {
    /// Begins a pull for a pod.
    pub fn begin(&self, uid: &str) -> PullTime {
        let mut pods = self.pods.borrow_mut();
        let pod = pods.entry(uid.to_owned()).or_default();
        pod.in_flight += 1;
        pod.since.get_or_insert_with(Instant::now);
        PullTime {
            times: self.clone(),
            uid: uid.to_owned(),
        }
    }

    /// How long images of a pod were being pulled; pulls at the same time count once, and those in
    /// flight not yet.
    pub fn of(&self, uid: &str) -> Duration {
        let pods = self.pods.borrow();
        pods.get(uid).map(|pod| pod.total).unwrap_or_default()
    }

    /// Forgets a pod.
    pub fn forget(&self, uid: &str) {
        self.pods.borrow_mut().remove(uid);
    }
}

impl Drop for PullTime {
    fn drop(&mut self) {
        let mut pods = self.times.pods.borrow_mut();
        let Some(pod) = pods.get_mut(&self.uid) else {
            return;
        };
        pod.in_flight = pod.in_flight.saturating_sub(1);
        if pod.in_flight == 0
            && let Some(since) = pod.since.take()
        {
            pod.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pulls_at_the_same_time_count_once() {
        let second = Duration::from_secs(1);
        let times = PullTimes::default();
        let (first, other) = (times.begin("u"), times.begin("u"));
        tokio::time::advance(second).await;
        drop(first);
        assert_eq!(times.of("u"), Duration::ZERO, "one is in flight");
        tokio::time::advance(second).await;
        drop(other);
        assert_eq!(times.of("u"), 2 * second);
        tokio::time::advance(second).await;
        let late = times.begin("u");
        tokio::time::advance(second).await;
        drop(late);
        assert_eq!(times.of("u"), 3 * second);
        let forgotten = times.begin("u");
        times.forget("u");
        drop(forgotten);
        assert_eq!(times.of("u"), Duration::ZERO);
    }
}
