//! Pods of which only directories, logs or cgroups are left on the node: when to search for them,
//! and what the last search found.

use jiff::Timestamp;
use polylet_wire::common::v1::PodRef;

use super::pod_workers::PodWorkers;
use crate::convert;
use crate::core::orphans::OrphanCleanup;

/// The schedule of searches and the pods found.
#[derive(Debug, Default)]
pub(crate) struct OrphanScan {
    schedule: OrphanCleanup,
    found: Vec<PodRef>,
}

impl OrphanScan {
    /// When the next search is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.schedule.due()
    }

    /// Starts a search if one is due.
    pub(crate) fn start(&mut self, now: Timestamp) -> bool {
        self.schedule.start(now)
    }

    /// Stores the result of a search until it can be adopted.
    pub(crate) fn on_found(&mut self, pods: Vec<PodRef>) {
        self.found = pods;
        self.schedule.on_finished();
    }

    /// All streams have synced: the first search may start.
    pub(crate) fn on_synced(&mut self, now: Timestamp) {
        self.schedule.enable(now);
    }

    /// A pod is gone, or its volumes are: what was held back may be removed now.
    pub(crate) fn on_pod_gone(&mut self, uid: &str, now: Timestamp) {
        self.schedule.on_pod_removed(uid, now);
    }

    /// Requests a search without a particular reason.
    pub(crate) fn on_housekeeping(&mut self, now: Timestamp) {
        self.schedule.run_now(now);
    }

    /// Creates workers that terminate the pods found. Call it once all streams are synced: a pod
    /// that no source and no runtime knows is then an orphan. It stays one to its end even if a
    /// source adds it meanwhile; it then starts from the beginning.
    pub(crate) fn adopt(&mut self, workers: &mut PodWorkers) {
        for pod in std::mem::take(&mut self.found) {
            if workers.contains(&pod.uid) || !self.schedule.should_adopt(&pod.uid) {
                continue;
            }
            tracing::info!(
                pod = %convert::pod_name(&pod),
                pod_uid = pod.uid,
                "orphaned pod data found; removing it"
            );
            let worker = workers.get_or_insert(&pod.uid.as_str().into(), &pod);
            worker.pod.removal_requested = true;
            worker.is_orphan = true;
        }
    }
}
