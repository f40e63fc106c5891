//! Steps on their way: started in the background, and come back as inputs.

use std::sync::Arc;

use crate::act::{Job, trace};
use crate::coordinator::Coordinator;
use crate::core::step::Step;

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
        // What the runtime then shows is the step's doing: its trace goes on there.
        let span = trace::refresh(&worker.reference, worker.last_step.as_ref());
        self.outside
            .refresh(&worker.reference, worker.pod.acts, span);
    }
}
