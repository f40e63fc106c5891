//! The end of a full declaration to volume-manager: only then may it take away
//! what nobody declared.

use jiff::{SignedDuration, Timestamp};

use crate::coordinator::Coordinator;
use crate::core::plan::Phase;
use crate::worker::Worker;

impl Coordinator {
    /// Tells volume-manager that it has heard everything, once that is so and no
    /// container runs whose pod it has not heard of.
    pub(crate) fn complete_desired(&mut self) {
        let ready =
            !self.completed && !self.completing && !self.draining && self.complete_after.is_none();
        if !ready || !self.node.all_heard || !self.node.volumes_fresh {
            return;
        }
        let settled = |worker: &Worker| match worker.plan.phase {
            Phase::Reclaimed | Phase::Terminated => true,
            Phase::Syncing => worker.pod.wanted.as_ref().is_some_and(|wanted| {
                !wanted.has_volumes
                    || worker.pod.blocked_by.is_some()
                    || worker.pod.volumes.declared.is_some()
            }),
            Phase::Unjudged | Phase::Terminating => worker.pod.volumes.declared.is_some(),
        };
        if !self.workers.values().all(settled) {
            return;
        }
        let declared = |w: &&Worker| w.pod.volumes.declared.is_some() && !w.pod.volumes.released;
        let pod_count =
            u32::try_from(self.workers.values().filter(declared).count()).unwrap_or(u32::MAX);
        self.completing = true;
        self.outside.complete(pod_count);
    }

    pub(crate) fn was_completed(&mut self, result: Result<(), String>, now: Timestamp) {
        self.completing = false;
        match result {
            Ok(()) => self.completed = true,
            Err(why) => {
                tracing::warn!(
                    why,
                    "volume-manager did not take the end of the declaration"
                );
                self.complete_after = now.checked_add(SignedDuration::from_secs(2)).ok();
            }
        }
    }
}
