//! Static pods with the same full name run one after the other: the next starts when the previous
//! one is gone. One that is known from the runtime alone is not removed before all sources have synced:
//! of it, only what runs is waited for. The API server may be the pod that waits. Pods of the cluster may
//! overlap: after a forced deletion the replacement does not wait for the grace period of the deleted pod.

use polylet_model::PodUid;
use polylet_wire::podconfig::v1::PodSource;

use super::pod_worker::PodWorker;
use super::pod_workers::PodWorkers;

/// The pod with the same full name that has to be gone first.
pub(crate) fn blocked_by(workers: &PodWorkers, uid: &PodUid) -> Option<String> {
    let worker = workers.get(uid)?;
    if worker.has_started() || worker.pod.spec.is_none() || is_from_api(worker) {
        return None;
    }
    let blocks = |other: &&PodWorker| {
        other.pod.uid != *uid
            && !other.is_orphan
            && !is_from_api(other)
            && other.pod.cleaned_up_at.is_none()
            && match other.is_unserved() {
                true => other.is_active(),
                false => other.has_started() || other.arrival < worker.arrival,
            }
    };
    workers
        .with_name(&worker.reference)
        .find(blocks)
        .map(|other| other.reference.uid.clone())
}

/// Requeues all pods with the full name of a pod that is gone.
pub(crate) fn requeue_same_name(workers: &mut PodWorkers, uid: &PodUid) {
    let Some(worker) = workers.get(uid) else {
        return;
    };
    let same = workers.with_name(&worker.reference);
    let same: Vec<_> = same.map(|worker| worker.pod.uid.clone()).collect();
    workers.queue.extend(same);
}

fn is_from_api(worker: &PodWorker) -> bool {
    worker.source == i32::from(PodSource::Api)
}
