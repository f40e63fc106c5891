//! Looking at pods: each that something happened to is planned for, and its plan begun.

use jiff::Timestamp;

use crate::act::trace;
use crate::coordinator::Coordinator;
use crate::core::learn;
use crate::core::notices;
use crate::core::plan::{Phase, plan};
use crate::core::step::StepKey;
use crate::core::view::View;

impl Coordinator {
    /// Looks at every pod that something happened to.
    pub fn work(&mut self, now: Timestamp) {
        self.take_up_leftovers();
        while let Some(uid) = self.next_dirty() {
            self.look(&uid, now);
        }
        self.complete_desired();
        if !self.store.is_whole() && self.heard.all_ever() {
            // Pods of which neither a source nor the runtime knows are no more.
            let gone = std::mem::take(&mut self.entries).into_keys();
            let intents = std::mem::take(&mut self.intents).into_keys();
            let lifecycles = std::mem::take(&mut self.lifecycles).into_keys();
            for uid in gone.chain(intents).chain(lifecycles) {
                self.outside.forget(&uid);
                self.hold(&uid, None);
            }
            self.outside.known(&|uid| self.workers.contains_key(uid));
            self.store.mark_whole();
            self.sweep.all_heard(now);
        }
        self.look_for_leftovers(now);
    }

    /// Plans for one pod and starts the plan's steps.
    fn look(&mut self, uid: &str, now: Timestamp) {
        let blocked_by = self.blocked_by(uid);
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        worker.pod.blocked_by = blocked_by;
        let seen = worker.pod.observed.as_ref();
        if let Some(running) = self.logs.observed(&worker.reference, seen) {
            self.outside.running(running);
        }
        let mut next = plan(&View {
            pod: &worker.pod,
            node: &self.node,
            now,
        });
        if next.wants_slot && !worker.pod.slot && !self.draining {
            let begun = worker
                .pod
                .observed
                .as_ref()
                .is_some_and(|o| !o.sandboxes.is_empty());
            if self.slots.take(uid, begun) {
                worker.pod.slot = true;
                next = plan(&View {
                    pod: &worker.pod,
                    node: &self.node,
                    now,
                });
            } else if worker.slot_wait.is_none() {
                worker.slot_wait = Some(trace::slot_wait(&worker.reference, worker.cause.as_ref()));
            }
        }
        if worker.pod.slot || !next.wants_slot {
            worker.slot_wait = None;
        }
        if next.phase != Phase::Syncing {
            worker.cancel(|key| matches!(key, StepKey::Pull(_)));
        }
        let reclaimed = next.phase == Phase::Reclaimed && worker.pod.reclaimed_at.is_none();
        if self.draining {
            next.steps.clear();
            next.stops.clear();
            next.resets.clear();
        }
        worker.cancel(|key| next.give_up.contains(key));
        let view = View {
            pod: &worker.pod,
            node: &self.node,
            now,
        };
        for notice in notices::of(&view, &worker.plan, &next, self.began) {
            self.outside.tell(&worker.reference, notice);
        }
        learn::began(&mut worker.pod, &next, now);
        if worker.lifecycle_kept != worker.pod.lifecycle {
            worker.lifecycle_kept.clone_from(&worker.pod.lifecycle);
            self.outside.keep(uid, &worker.pod.lifecycle);
        }
        let asks = next.asks;
        let steps = next.steps.clone();
        let forget = next.forget && worker.pod.flights.is_empty();
        let wake = next.wake_at;
        worker.planned(next);
        if let Some(told) = worker.told() {
            self.store.upsert(uid.to_owned(), told);
        }
        self.set_wake(uid, wake);
        self.account(uid, now);
        for step in steps {
            self.launch(uid, step);
        }
        let idle = |worker: &crate::worker::Worker| !worker.refreshing;
        if asks && !self.draining && self.workers.get(uid).is_some_and(idle) {
            self.refresh(uid);
        }
        self.free_slot(uid);
        if reclaimed {
            self.dirty.insert(uid.to_owned());
            self.wake_namesakes(uid);
        }
        if forget {
            self.forget(uid, now);
        }
    }

    fn set_wake(&mut self, uid: &str, wake: Option<Timestamp>) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        if worker.wake == wake {
            return;
        }
        let old = std::mem::replace(&mut worker.wake, wake);
        self.wakes.set(uid, old, wake);
    }

    /// Nothing is left of a pod; should its source still serve it, it begins anew.
    fn forget(&mut self, uid: &str, now: Timestamp) {
        self.set_wake(uid, None);
        self.slots.leave(uid);
        let Some(worker) = self.workers.remove(uid) else {
            return;
        };
        if let Some(running) = self.logs.observed(&worker.reference, None) {
            self.outside.running(running);
        }
        if !worker.relic {
            self.sweep.left(uid, now);
        }
        self.outside.forget(uid);
        self.seekers.remove(uid);
        self.hold(uid, None);
        self.store.remove(&uid.to_owned());
        if worker.pod.listed
            && let (Some(manifest), Some(wanted)) = (worker.manifest, worker.pod.wanted)
        {
            let new = self.worker(&worker.reference);
            new.pod.journal.acknowledged_at = Some(now);
            new.want(worker.source, manifest, (*wanted).clone(), worker.cause);
        }
    }
}
