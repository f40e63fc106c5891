//! Full declarations to volume-manager, and their end: only then may it take away what nobody
//! declared.
//!
//! Whoever declares last is believed. A call of a former life of this process that comes late
//! makes volume-manager take the present life for the dead one: it then takes a name that was never
//! heard, and declares everything under it.

use jiff::{SignedDuration, Timestamp};

use crate::coordinator::Coordinator;
use crate::core::learn::{self, Trouble};
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
        self.outside.complete(self.declarer, pod_count);
    }

    /// Volume-manager has to hear everything again, under a name that it never heard: what is
    /// under way under the former one counts for nothing.
    pub(crate) fn declare_anew(&mut self) {
        self.declarer = self.declarer.wrapping_add(1);
        for worker in self.workers.values_mut() {
            learn::volumes_anew(&mut worker.pod);
        }
        self.completed = false;
        self.completing = false;
        self.all_dirty();
    }

    /// Volume-manager takes somebody else for its declarer.
    pub(crate) fn was_followed(&mut self) {
        tracing::warn!("a call of a former life reached volume-manager late: all is declared anew");
        self.declare_anew();
    }

    pub(crate) fn was_completed(
        &mut self,
        declarer: u32,
        result: Result<(), Trouble>,
        now: Timestamp,
    ) {
        if declarer != self.declarer {
            return;
        }
        self.completing = false;
        match result {
            Ok(()) => self.completed = true,
            Err(trouble) if trouble.followed => self.was_followed(),
            Err(trouble) => {
                let why = trouble.message;
                tracing::warn!(
                    why,
                    "volume-manager did not take the end of the declaration"
                );
                self.complete_after = now.checked_add(SignedDuration::from_secs(2)).ok();
            }
        }
    }
}
