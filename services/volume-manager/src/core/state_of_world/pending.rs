//! The pods to reconcile: at once, or at a time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::DueQueue;

/// The pods to reconcile.
#[derive(Debug, Default)]
pub(super) struct PendingPods {
    changed: BTreeSet<PodUid>,
    retries: DueQueue<PodUid, Timestamp>,
}

impl PendingPods {
    /// Requeues a pod at once.
    pub(super) fn requeue(&mut self, uid: &PodUid) {
        self.changed.insert(uid.clone());
    }

    /// Requeues a pod at a time, or earlier if it is due earlier.
    pub(super) fn requeue_at(&mut self, uid: &PodUid, at: Timestamp) {
        self.retries.set_no_later(uid.clone(), at);
    }

    /// Takes the pods to reconcile now; `true` for those that had a retry pending.
    pub(super) fn take(&mut self, now: Timestamp) -> Vec<(PodUid, bool)> {
        let mut changed = std::mem::take(&mut self.changed);
        let mut pods = Vec::new();
        while let Some(uid) = self.retries.pop_due(now) {
            changed.remove(&uid);
            pods.push((uid, true));
        }
        for uid in changed {
            let retry = self.retries.cancel(&uid).is_some();
            pods.push((uid, retry));
        }
        pods.sort_unstable();
        pods
    }

    /// The time of the next retry.
    pub(super) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.next_due()
    }
}
