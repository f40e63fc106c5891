//! Steps: started in the background, they come back as inputs; what came of them, and what the
//! runtime says after them.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_wire::pleg::v1::PodState;

use crate::act::{Job, trace};
use crate::convert;
use crate::coordinator::Coordinator;
use crate::core::learn::{self, Outcome, Trouble};
use crate::core::step::{Step, StepKey};

impl Coordinator {
    /// Starts a step.
    pub(crate) fn launch(&mut self, uid: &str, step: Step) {
        self.sequence += 1;
        let ledger = &self.node.room.ledger;
        let class_requests = match step {
            Step::EnsureCgroup => ledger.class_requests("", None),
            Step::RemoveCgroup => ledger.class_requests(uid, None),
            Step::Resize { .. } => {
                let worker = self.workers.get(uid);
                let demand = worker.and_then(|worker| worker.pod.journal.demand.as_deref());
                ledger.class_requests(uid, demand)
            }
            _ => Default::default(),
        };
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        let key = step.key();
        let job = Job {
            pod: worker.reference.clone(),
            manifest: match step {
                // What its containers still have must fit into it.
                Step::EnsureCgroup => worker.manifest_in_cgroup(),
                _ => worker.allocated_manifest(),
            },
            step,
            observed: worker.pod.observed.clone().unwrap_or_default(),
            volumes: worker
                .pod
                .volumes
                .seen
                .as_ref()
                .map(|(_, seen)| seen.clone())
                .unwrap_or_default(),
            journal: worker.pod.journal.clone(),
            sequence: self.sequence,
            declarer: self.declarer,
            class_requests,
            handlers: Arc::clone(&self.handlers),
            host_ips: Arc::clone(&self.host_ips),
            cause: worker.cause.clone(),
        };
        let span = trace::span(&job);
        worker.last_step = Some(trace::cause_of(&span))
            .filter(|c| !c.traceparent.is_empty())
            .or(worker.cause.clone());
        if let Some(cancel) = self.outside.carry_out(job, span) {
            worker.cancels.insert(key, cancel);
        }
    }

    /// Asks the runtime how a pod stands after our acts.
    pub(crate) fn refresh(&mut self, uid: &str) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        if worker.refreshing {
            worker.refresh_again = true;
            return;
        }
        worker.refreshing = true;
        worker.asked_at = worker.pod.base.at;
        // What the runtime then shows is the step's doing: its trace goes on there.
        let span = trace::refresh(&worker.reference, worker.last_step.as_ref());
        self.outside
            .refresh(&worker.reference, worker.pod.acts, span);
    }

    /// A step has come to its end.
    pub(crate) fn step_done(
        &mut self,
        uid: &str,
        key: &StepKey,
        outcome: Outcome,
        state: Option<PodState>,
        now: Timestamp,
    ) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        worker.cancels.remove(key);
        let mut ask = false;
        if let Some(state) = state {
            ask = learn::observed(&mut worker.pod, convert::observed(&state));
        }
        if let Outcome::Failed(trouble) = &outcome {
            let (reason, why) = (&trouble.reason, &trouble.message);
            let pod = &worker.reference.name;
            // The runtime is still at a call of a former life of ours: soon over.
            if trouble.reserved {
                tracing::debug!(k8s.pod.uid = uid, k8s.pod.name = pod, step = ?key, why, "step met a former one");
            } else {
                tracing::warn!(k8s.pod.uid = uid, k8s.pod.name = pod, step = ?key, reason, why, "step failed");
            }
        }
        if let Some(cancel) = worker.awaited.remove(key) {
            cancel.cancel();
        }
        if let Outcome::Failed(Trouble {
            lacking: Some(lacking),
            ..
        }) = &outcome
        {
            let cancel = self.outside.await_object(uid, key, (**lacking).clone());
            worker.awaited.insert(key.clone(), cancel);
        }
        let failed = matches!(outcome, Outcome::Failed(_));
        let followed = learn::is_followed(&worker.pod, &outcome);
        learn::ended(&mut worker.pod, key, outcome, now);
        let leaving = worker.pod.leaving;
        ask |= match key {
            StepKey::Sandbox | StepKey::Start(_) | StepKey::RemoveSandbox(_) => true,
            StepKey::StopSandbox(_) | StepKey::RemoveContainer(_) => failed || !leaving,
            StepKey::Create(_) | StepKey::StopContainer(_) => failed,
            _ => false,
        };
        if ask {
            self.refresh(uid);
        }
        if followed {
            self.was_followed();
        }
        self.dirty.insert(uid.to_owned());
    }

    /// What a step failed for is there now.
    pub(crate) fn appeared(&mut self, uid: &str, key: &StepKey, now: Timestamp) {
        if let Some(worker) = self.workers.get_mut(uid) {
            worker.awaited.remove(key);
            learn::retry(&mut worker.pod, key, now);
            self.dirty.insert(uid.to_owned());
        }
    }

    /// The runtime was asked for a pod.
    pub(crate) fn refreshed(&mut self, uid: String, acts: u64, state: Option<PodState>) {
        let Some(worker) = self.workers.get_mut(&uid) else {
            return;
        };
        worker.refreshing = false;
        let mut again = std::mem::take(&mut worker.refresh_again);
        if let Some(state) = state {
            let (state, known) = (convert::observed(&state), worker.asked_at);
            again |= learn::refreshed(&mut worker.pod, state, acts, known);
        }
        if again {
            self.refresh(&uid);
        }
        self.dirty.insert(uid);
    }
}
