//! The workers of all pods.

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::pod::RecentlyParsed;
use polylet_model::{Manifest, PodAllocation, PodUid};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::PodSource;

use super::failed_pulls::FailedPulls;
use super::pod_worker::PodWorker;
use super::reconcile_queue::ReconcileQueue;
use super::report_cache::ReportCache;
use super::resource_usage;
use crate::checkpoint::RestoredState;
use crate::core::apply_result;

/// All workers by pod UID, and what waits for pods that are not known yet.
pub(crate) struct PodWorkers {
    /// Boxed, as a node of the map has room for eleven.
    workers: BTreeMap<PodUid, Box<PodWorker>>,
    /// Namespace, name and UID of each of them.
    names: BTreeSet<(String, String, PodUid)>,
    served: ServedCounts,
    failed_pulls: FailedPulls,
    arrivals: u64,
    /// State of a previous process instance.
    restored: RestoredState,
    /// The initial list of pod states has arrived: a pod without one is not in the runtime.
    pod_states_synced: bool,
    parsed: RecentlyParsed,
    pub(crate) reports: ReportCache,
    pub(crate) queue: ReconcileQueue,
}

/// How many pods sources serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedCounts {
    /// Pods of the API server.
    pub(crate) of_api: usize,
    /// Pods of other sources.
    pub(crate) others: usize,
}

impl ServedCounts {
    /// The number that a source's pods are part of.
    fn of_source(&mut self, source: i32) -> &mut usize {
        if source == i32::from(PodSource::Api) {
            &mut self.of_api
        } else {
            &mut self.others
        }
    }

    /// Counts a pod for the source that serves it now instead of the one before.
    fn replace(&mut self, before: Option<i32>, now: Option<i32>) {
        if let Some(source) = before {
            *self.of_source(source) -= 1;
        }
        if let Some(source) = now {
            *self.of_source(source) += 1;
        }
    }
}

impl PodWorkers {
    /// No workers, and the state of a previous process instance.
    pub(crate) fn new(restored: RestoredState) -> Self {
        PodWorkers {
            workers: BTreeMap::new(),
            names: BTreeSet::new(),
            served: ServedCounts::default(),
            failed_pulls: FailedPulls::default(),
            arrivals: 0,
            restored,
            pod_states_synced: false,
            parsed: RecentlyParsed::default(),
            reports: ReportCache::default(),
            queue: ReconcileQueue::default(),
        }
    }

    /// Whether a pod has a worker.
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.workers.contains_key(uid)
    }

    /// The worker of a pod.
    pub(crate) fn get(&self, uid: &str) -> Option<&PodWorker> {
        self.workers.get(uid).map(Box::as_ref)
    }

    /// The worker of a pod, to be changed.
    pub(crate) fn get_mut(&mut self, uid: &str) -> Option<&mut PodWorker> {
        self.workers.get_mut(uid).map(Box::as_mut)
    }

    /// All workers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PodWorker> {
        self.workers.values().map(Box::as_ref)
    }

    /// All workers, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PodWorker> {
        self.workers.values_mut().map(Box::as_mut)
    }

    /// The workers of all pods with this name in this namespace, by UID.
    pub(crate) fn with_name(&self, pod: &PodRef) -> impl Iterator<Item = &PodWorker> {
        let first = (pod.namespace.clone(), pod.name.clone(), PodUid::default());
        let names = self.names.range(first..);
        let same = names
            .take_while(|(namespace, name, _)| (namespace, name) == (&pod.namespace, &pod.name));
        same.filter_map(|(_, _, uid)| self.get(uid))
    }

    /// How many pods sources serve.
    pub(crate) fn served(&self) -> ServedCounts {
        self.served
    }

    /// The worker of a pod that a source serves, created if there is none. The pod is queued.
    pub(crate) fn insert_served(
        &mut self,
        uid: &PodUid,
        reference: &PodRef,
        source: i32,
    ) -> &mut PodWorker {
        let before = self.get(uid).and_then(PodWorker::served_by);
        self.served.replace(before, Some(source));
        let worker = self.get_or_insert(uid, reference);
        worker.set_source(source);
        worker
    }

    /// The worker of a pod that its source has removed; none if that is not the pod's source.
    pub(crate) fn remove_source(&mut self, uid: &PodUid, source: i32) -> Option<&mut PodWorker> {
        let worker = self.workers.get_mut(uid)?;
        if worker.source != source {
            return None;
        }
        self.served.replace(worker.served_by(), None);
        worker.pod.has_source = false;
        Some(worker)
    }

    /// The worker of a pod, created if there is none. The pod is queued.
    pub(crate) fn get_or_insert(&mut self, uid: &PodUid, reference: &PodRef) -> &mut PodWorker {
        self.note_parsed(uid);
        self.queue.push(uid);
        self.set_missing_name(uid, reference);
        self.workers.entry(uid.clone()).or_insert_with(|| {
            self.arrivals += 1;
            let mut worker = PodWorker::new(uid.clone(), reference.clone(), self.arrivals);
            self.names.insert(name_key(&worker));
            if let Some(checkpoint) = self.restored.checkpoints.remove(uid.as_str()) {
                worker.pod.checkpoint = checkpoint;
                worker.pod.checkpointed = true;
                worker.pod.awaits_inspection = true;
            }
            if let Some(attempt) = self.restored.pending_sandboxes.remove(uid.as_str()) {
                worker.pod.min_sandbox_attempt = attempt.saturating_add(1);
            }
            if let Some(lifecycle) = self.restored.lifecycles.remove(uid.as_str()) {
                worker.saved_lifecycle = lifecycle.clone();
                worker.pod.lifecycle = lifecycle;
            }
            self.reports.apply_to(&mut worker.pod);
            if self.pod_states_synced {
                // Not in the runtime so far; any later state is newer.
                apply_result::on_absent(&mut worker.pod);
            }
            Box::new(worker)
        })
    }

    /// Sets the name of a pod that was known by its UID only.
    fn set_missing_name(&mut self, uid: &PodUid, reference: &PodRef) {
        let Some(worker) = self.workers.get_mut(uid) else {
            return;
        };
        if worker.reference.name.is_empty() && !reference.name.is_empty() {
            self.names.remove(&name_key(worker));
            worker.reference.clone_from(reference);
            self.names.insert(name_key(worker));
        }
    }

    /// Removes a worker.
    pub(crate) fn remove(&mut self, uid: &PodUid) -> Option<PodWorker> {
        self.queue.forget(uid);
        self.failed_pulls.remove(uid);
        let worker = *self.workers.remove(uid.as_str())?;
        self.names.remove(&name_key(&worker));
        self.served.replace(worker.served_by(), None);
        Some(worker)
    }

    /// Updates which images a pod could not pull, after a step or a change of its manifest.
    pub(crate) fn update_failed_pulls(&mut self, uid: &PodUid) {
        if let Some(worker) = self.workers.get(uid) {
            let images = apply_result::failed_images(&worker.pod);
            self.failed_pulls.set(uid, images);
        }
    }

    /// The pods that could not pull this image, by UID.
    pub(crate) fn pods_without_image(&self, image: &str) -> Vec<PodUid> {
        self.failed_pulls.pods(image)
    }

    /// Queues all pods.
    pub(crate) fn requeue_all(&mut self) {
        self.queue.extend(self.workers.keys().cloned());
    }

    /// The next pod to reconcile.
    pub(crate) fn next_to_reconcile(&mut self) -> Option<PodUid> {
        let workers = &self.workers;
        let next = self.queue.pop(
            |uid| workers.get(uid).map(|worker| worker.arrival),
            |uid| {
                workers
                    .get(uid)
                    .map(|worker| resource_usage::capacity_priority(worker))
            },
        )?;
        self.note_parsed(&next);
        Some(next)
    }

    /// The manifest of a pod is about to be read.
    fn note_parsed(&mut self, uid: &PodUid) {
        let oldest = self.parsed.insert(uid);
        if let Some(worker) = oldest.and_then(|oldest| self.workers.get_mut(&oldest)) {
            worker.free_spare();
        }
    }

    /// Nothing has happened for a while: keeps manifests as JSON alone.
    pub(crate) fn drop_all_parsed(&mut self) {
        for uid in self.parsed.take() {
            if let Some(worker) = self.workers.get_mut(&uid) {
                worker.free_spare();
            }
        }
    }

    /// The initial list of pod states has arrived: pods without a state are not in the runtime.
    pub(crate) fn on_pod_states_synced(&mut self) {
        self.pod_states_synced = true;
        for worker in self.workers.values_mut() {
            if worker.pod.observed.is_none() {
                apply_result::on_absent(&mut worker.pod);
            }
        }
        self.requeue_all();
    }

    /// The manifest of a pod if these bytes are the same.
    pub(crate) fn unchanged_manifest(&self, uid: &str, raw: &[u8]) -> Option<&Manifest> {
        let manifest = self.workers.get(uid)?.manifest.as_ref()?;
        (manifest.raw() == raw).then_some(manifest)
    }

    /// Takes the resources that a kubelet had allocated to a pod before this agent took over.
    pub(crate) fn take_kubelet_allocation(&mut self, uid: &str) -> Option<PodAllocation> {
        self.restored.kubelet_allocations.remove(uid)
    }

    /// Takes the UIDs of all restored pods that neither a source nor the runtime knows.
    pub(crate) fn take_unknown(&mut self) -> Vec<PodUid> {
        let restored = &mut self.restored;
        let checkpoints = std::mem::take(&mut restored.checkpoints).into_keys();
        let sandboxes = std::mem::take(&mut restored.pending_sandboxes).into_keys();
        let lifecycles = std::mem::take(&mut restored.lifecycles).into_keys();
        checkpoints
            .chain(sandboxes)
            .chain(lifecycles)
            .map(PodUid::from)
            .collect()
    }
}

/// The entry of a worker in the set of names.
fn name_key(worker: &PodWorker) -> (String, String, PodUid) {
    let PodRef {
        namespace, name, ..
    } = &worker.reference;
    (namespace.clone(), name.clone(), worker.pod.uid.clone())
}
