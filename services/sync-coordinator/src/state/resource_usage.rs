//! Node resources that pods hold.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::qos::QosClass;

use super::pod_worker::PodWorker;
use crate::core::checkpoint::PodCheckpoint;
use crate::core::node_resources::{AllocatedPod, AllocatedPods, PodRequest};
use crate::core::runtime_state::ContainerRecord;
use crate::core::step::{Step, StepKey};

/// The allocations of a previous process instance, before any source has synced.
pub(crate) fn restored(checkpoints: &BTreeMap<String, PodCheckpoint>) -> AllocatedPods {
    let mut allocated = AllocatedPods::default();
    for (uid, checkpoint) in checkpoints.iter().filter(|(_, c)| !c.terminated) {
        let allocation = checkpoint.request.clone().map(|request| AllocatedPod {
            request,
            terminating: checkpoint.termination.is_some(),
            served: false,
        });
        allocated.set(&uid.as_str().into(), allocation);
    }
    allocated
}

/// The order in which pods get capacity, smallest first: admissions and resizes that do not grow;
/// then by pod priority, Guaranteed before other classes, and the longest wait.
pub(crate) fn capacity_priority(worker: &PodWorker) -> impl Ord + use<> {
    let pod = &worker.pod;
    let (allocated, spec) = (pod.checkpoint.request.as_ref(), pod.spec.as_ref());
    let grows = allocated.zip(spec).is_some_and(|(allocated, spec)| {
        let grows = |name| spec.request.requested(name) > allocated.requested(name);
        grows("cpu") || grows("memory")
    });
    let request = spec.map(|spec| &spec.request);
    let priority = request.and_then(|request| request.priority).unwrap_or(0);
    let guaranteed = request.is_some_and(|request| request.qos == QosClass::Guaranteed);
    let since = pod.resize_pending_since.unwrap_or(Timestamp::MAX);
    (grows, Reverse(priority), Reverse(guaranteed), since)
}

/// What a pod holds of the node: from its admission until nothing of it is left or its source has
/// dropped it.
pub(crate) fn allocation(worker: &PodWorker, all_synced: bool) -> Option<AllocatedPod> {
    let pod = &worker.pod;
    let orphan = pod.spec.is_none() && !pod.has_source && all_synced;
    let dropped = pod.removal_requested && !pod.has_source;
    if pod.cleaned_up_at.is_some() || pod.checkpoint.terminated || orphan || dropped {
        return None;
    }
    let request = pod.checkpoint.request.clone().or_else(|| {
        // Started by another agent, which wrote no checkpoint.
        let runs = pod.checkpointed || pod.observed.as_ref().is_some_and(|o| !o.is_empty());
        let spec = pod.spec.as_ref()?;
        (runs && pod.checkpoint.termination.is_none()).then(|| Arc::clone(&spec.request))
    })?;
    // What running containers still have counts until the resize is actuated.
    let request = match unresized_request(worker) {
        Some(before) => Arc::new(request.max(&before)),
        None => request,
    };
    // While a resize is being written, the pod holds the larger of both.
    let in_flight = pod.in_flight.get(&StepKey::Checkpoint);
    let request = match in_flight.map(|in_flight| &in_flight.step) {
        Some(Step::CheckpointAllocation { request: new, .. }) => Arc::new(request.max(new)),
        _ => request,
    };
    let terminating =
        pod.removal_requested || pod.eviction.is_some() || pod.checkpoint.termination.is_some();
    Some(AllocatedPod {
        request,
        terminating,
        served: !worker.is_unserved(),
    })
}

/// The request of what the pod's running containers have while a resize of them is in progress.
fn unresized_request(worker: &PodWorker) -> Option<PodRequest> {
    let pod = &worker.pod;
    let before = pod.checkpoint.cgroup_resources.as_ref()?;
    let mut containers = pod.observed.as_ref()?.containers.iter();
    let runs = containers.any(ContainerRecord::may_run);
    let manifest = worker.manifest.as_ref().filter(|_| runs)?;
    Some(PodRequest::from_manifest(&before.apply_to(manifest)))
}
