//! Places for pods that start: a runtime is fastest with about ten at once.

use std::collections::VecDeque;

use crate::coordinator::Coordinator;

/// Who starts, and who waits for that in which order.
#[derive(Debug)]
pub(crate) struct Slots {
    free: usize,
    queue: VecDeque<String>,
}

impl Slots {
    /// As many places.
    pub(crate) fn new(places: usize) -> Self {
        Slots {
            free: places.max(1),
            queue: VecDeque::new(),
        }
    }

    /// Takes a place for a pod, or puts it into the queue: a pod that has begun
    /// comes before those that have not, so that starts end soon.
    pub(crate) fn take(&mut self, uid: &str, begun: bool) -> bool {
        if self.free > 0 {
            self.free -= 1;
            return true;
        }
        if self.queue.iter().any(|waiting| waiting == uid) {
            return false;
        }
        if begun {
            self.queue.push_front(uid.to_owned());
        } else {
            self.queue.push_back(uid.to_owned());
        }
        false
    }

    /// Gives a place back; the pod that is told of has it now.
    pub(crate) fn release(&mut self) -> Option<String> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.free += 1;
        }
        next
    }

    /// A pod no longer waits.
    pub(crate) fn leave(&mut self, uid: &str) {
        self.queue.retain(|waiting| waiting != uid);
    }
}

impl Coordinator {
    /// Gives a pod's place to the next one when nothing of it loads the runtime.
    pub(crate) fn free_slot(&mut self, uid: &str) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        if !worker.pod.slot {
            if !worker.plan.wants_slot {
                self.slots.leave(uid);
            }
            return;
        }
        if worker
            .pod
            .flights
            .values()
            .any(|flight| flight.step.is_heavy_start())
        {
            return;
        }
        worker.pod.slot = false;
        if let Some(next) = self.slots.release() {
            match self.workers.get_mut(&next) {
                Some(other) => other.pod.slot = true,
                None => drop(self.slots.release()),
            }
            self.dirty.insert(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_round_in_order() {
        let mut slots = Slots::new(1);
        assert!(slots.take("a", false));
        assert!(!slots.take("b", false));
        assert!(!slots.take("b", false));
        assert!(!slots.take("c", true));
        assert_eq!(slots.release().as_deref(), Some("c"));
        assert_eq!(slots.release().as_deref(), Some("b"));
        assert_eq!(slots.release(), None);
        assert!(slots.take("d", false));
    }
}
