//! The order in which pods are reconciled.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::DueQueue;

/// Pods to reconcile now, and the due times of others.
#[derive(Debug, Default)]
pub(crate) struct ReconcileQueue {
    pending: BTreeSet<PodUid>,
    /// The pods of this iteration, the next one last.
    batch: Vec<PodUid>,
    /// Pods that wait for capacity on the node.
    waiting_for_capacity: BTreeSet<PodUid>,
    due: DueQueue<PodUid, Timestamp>,
}

impl ReconcileQueue {
    /// Queues a pod.
    pub(crate) fn push(&mut self, uid: &PodUid) {
        self.pending.insert(uid.clone());
    }

    /// Queues several pods.
    pub(crate) fn extend(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.pending.extend(uids);
    }

    /// Queues the pods that wait for capacity.
    pub(crate) fn requeue_waiting_for_capacity(&mut self) {
        self.pending
            .extend(self.waiting_for_capacity.iter().cloned());
    }

    /// Sets whether a pod waits for capacity.
    pub(crate) fn set_waiting_for_capacity(&mut self, uid: &PodUid, waiting: bool) {
        if waiting {
            self.waiting_for_capacity.insert(uid.clone());
        } else {
            self.waiting_for_capacity.remove(uid);
        }
    }

    /// Removes the due time of a pod that is gone. A pod that is queued stays queued.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.waiting_for_capacity.remove(uid);
        self.due.cancel(uid);
    }

    /// Sets or removes the time at which a pod is reconciled without an input.
    pub(crate) fn set_due(&mut self, uid: &PodUid, due: Option<Timestamp>) {
        self.due.set_opt(uid.clone(), due);
    }

    /// The earliest due time.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.next_due()
    }

    /// Queues the pods whose due time has come.
    pub(crate) fn requeue_due(&mut self, now: Timestamp) {
        while let Some(uid) = self.due.pop_due(now) {
            self.pending.insert(uid);
        }
    }

    /// Removes all due times.
    pub(crate) fn clear_due(&mut self) {
        self.due.clear();
    }

    /// Whether a pod is queued.
    #[cfg(test)]
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.pending.contains(uid)
    }

    /// Whether no pod is queued.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.batch.is_empty()
    }

    /// The next pod: in the order of their arrival, so that the first one gets the capacity when
    /// there is not enough for all; then those that wait for capacity, by their priority for it.
    pub(crate) fn pop<A: Ord, P: Ord>(
        &mut self,
        arrival: impl Fn(&str) -> A,
        priority: impl Fn(&str) -> P,
    ) -> Option<PodUid> {
        if self.batch.is_empty() {
            for uid in std::mem::take(&mut self.pending) {
                if self.waiting_for_capacity.contains(&uid) {
                    self.pending.insert(uid);
                } else {
                    self.batch.push(uid);
                }
            }
            self.batch.sort_by_key(|uid| Reverse(arrival(uid)));
        }
        if let Some(next) = self.batch.pop() {
            // A pod before it in the batch may have queued it again.
            self.pending.remove(&next);
            return Some(next);
        }
        let next = self.pending.iter().min_by_key(|uid| priority(uid))?.clone();
        self.pending.remove(&next);
        Some(next)
    }
}
