//! Pods of which only remains are left on the node: looked for, and taken up as pods that leave.

use std::collections::BTreeSet;

use jiff::Timestamp;
use polylet_model::names;
use polylet_wire::common::v1::PodRef;

use crate::coordinator::Coordinator;
use crate::core::observed::Phase;

impl Coordinator {
    /// When to look next; never before everybody is heard.
    pub(crate) fn next_look_for_leftovers(&self) -> Option<Timestamp> {
        let may = self.node.all_heard && !self.draining;
        self.sweep.due().filter(|_| may)
    }

    /// Looks, when it is time.
    pub(crate) fn look_for_leftovers(&mut self, now: Timestamp) {
        if self.next_look_for_leftovers().is_none() || !self.sweep.begin(now) {
            return;
        }
        self.outside.leftovers();
        self.outside.unlink(self.needed_links());
    }

    /// What was found is judged once all are heard.
    pub(crate) fn leftovers_found(&mut self, found: Vec<PodRef>) {
        self.leftovers = found;
        self.sweep.ended();
    }

    /// Pods that only their remains tell of are orphans like those that the runtime tells of. They
    /// stay so to their end, should a source come to want them meanwhile: then they begin anew.
    pub(crate) fn take_up_leftovers(&mut self) {
        if !self.node.all_heard {
            return;
        }
        for pod in std::mem::take(&mut self.leftovers) {
            if self.workers.contains_key(&pod.uid) || !self.sweep.take_up(&pod.uid) {
                continue;
            }
            tracing::info!(
                k8s.pod.uid = pod.uid,
                k8s.pod.name = pod.name,
                k8s.namespace.name = pod.namespace,
                "a pod that is no more left something behind"
            );
            let worker = self.worker(&pod);
            worker.pod.leaving = true;
            worker.relic = true;
        }
    }

    /// Links to logs of containers that have not ended.
    fn needed_links(&self) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        for worker in self.workers.values() {
            let (pod, namespace) = (&worker.reference.name, &worker.reference.namespace);
            let containers = worker.pod.observed.iter().flat_map(|o| &o.containers);
            let alive = containers.filter(|c| c.phase != Phase::Exited);
            needed.extend(
                alive.map(|c| {
                    names::container_log_link(pod, namespace, &c.name, &c.id.clone().into())
                }),
            );
        }
        needed
    }
}
