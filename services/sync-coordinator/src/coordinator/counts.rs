//! What is counted of a pod after its reconciliation.

use jiff::Timestamp;
use polylet_model::{ContainerKind, PodUid};
use polylet_wire::podconfig::v1::PodSource;
use polylet_wire::time::from_wire_opt;

use crate::core::pod_counts::CountedPod;
use crate::core::pod_syncs::SyncKind;
use crate::runtime::metrics::pods;
use crate::state::State;
use crate::state::pod_worker::PodWorker;

/// Counts a pod's state and syncs, in a process that started at `started_at`.
pub(super) fn count_pod(state: &mut State, uid: &PodUid, started_at: Timestamp, now: Timestamp) {
    let Some(worker) = state.workers.get_mut(uid) else {
        return;
    };
    let busy = !worker.pod.in_flight.is_empty();
    let observed = worker.pod.observed.as_ref();
    let exists = observed.is_some_and(|observed| !observed.is_empty());
    let change = worker.syncs.on_plan(worker.plan.phase, busy, exists, now);
    pods::count_sync(&change);
    if change.begun == Some(SyncKind::Create) {
        let manifest = worker.manifest.as_ref();
        let containers = manifest.map_or(0, |manifest| manifest.containers().len());
        pods::count_new_pod(containers, since_first_sight(worker, started_at, now));
    }
    if state.counts.set(uid, counted(worker)) {
        pods::count_orphan();
    }
}

/// In seconds; `None` for a pod that was seen before this process started.
fn since_first_sight(worker: &PodWorker, started_at: Timestamp, now: Timestamp) -> Option<f64> {
    let cause = worker.cause.as_ref()?;
    let seen = from_wire_opt(cause.observed_at.as_ref())?;
    (seen >= started_at).then(|| now.duration_since(seen).as_secs_f64().max(0.0))
}

fn counted(worker: &PodWorker) -> CountedPod {
    let spec = worker.pod.spec.as_ref();
    let ephemeral = spec.map(|spec| spec.containers_of_kind(ContainerKind::Ephemeral));
    let pod = CountedPod {
        has_source: worker.pod.has_source,
        has_manifest: worker.manifest.is_some(),
        is_static: worker.source != i32::from(PodSource::Api),
        ephemeral_containers: ephemeral.map_or(0, Iterator::count),
        ..CountedPod::default()
    };
    pod.with_plan(&worker.plan)
}
