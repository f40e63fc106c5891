//! Limits how many pods start at the same time: a runtime is fastest with about ten.

use std::collections::VecDeque;

use super::pod_workers::PodWorkers;

/// Free permits, and the queue for them.
#[derive(Debug)]
pub(crate) struct StartLimiter {
    free: usize,
    queue: VecDeque<String>,
}

impl StartLimiter {
    /// With this many permits, at least one.
    pub(crate) fn new(permits: usize) -> Self {
        StartLimiter {
            free: permits.max(1),
            queue: VecDeque::new(),
        }
    }

    /// Takes a permit for a pod, or queues the pod. A pod that has a sandbox goes first, so that
    /// starts finish early.
    pub(crate) fn try_acquire(&mut self, uid: &str, has_sandbox: bool) -> bool {
        if self.free > 0 {
            self.free -= 1;
            return true;
        }
        if self.queue.iter().any(|waiting| waiting == uid) {
            return false;
        }
        if has_sandbox {
            self.queue.push_front(uid.to_owned());
        } else {
            self.queue.push_back(uid.to_owned());
        }
        false
    }

    /// Returns a permit; passes it on to the pod returned.
    pub(crate) fn release(&mut self) -> Option<String> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.free += 1;
        }
        next
    }

    /// Removes a pod from the queue.
    pub(crate) fn leave_queue(&mut self, uid: &str) {
        self.queue.retain(|waiting| waiting != uid);
    }

    /// Passes a pod's permit on when none of its steps in flight needs it.
    pub(crate) fn release_unused(&mut self, workers: &mut PodWorkers, uid: &str) {
        let Some(worker) = workers.get_mut(uid) else {
            return;
        };
        if !worker.pod.has_start_permit {
            if !worker.plan.needs_start_permit {
                self.leave_queue(uid);
            }
            return;
        }
        let mut in_flight = worker.pod.in_flight.values();
        if in_flight.any(|in_flight| in_flight.step.takes_start_permit()) {
            return;
        }
        worker.pod.has_start_permit = false;
        if let Some(next) = self.release() {
            match workers.get_mut(&next) {
                Some(other) => other.pod.has_start_permit = true,
                None => drop(self.release()),
            }
            workers.queue.push(&next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_passed_on_in_order() {
        let mut limiter = StartLimiter::new(1);
        assert!(limiter.try_acquire("a", false));
        assert!(!limiter.try_acquire("b", false));
        assert!(!limiter.try_acquire("b", false));
        assert!(!limiter.try_acquire("c", true));
        assert_eq!(limiter.release().as_deref(), Some("c"));
        assert_eq!(limiter.release().as_deref(), Some("b"));
        assert_eq!(limiter.release(), None);
        assert!(limiter.try_acquire("d", false));
    }
}
