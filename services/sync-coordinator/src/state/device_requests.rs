//! What device-manager is asked for a pod's devices, with the node's other pods that have some.

use polylet_kit::clock;
use polylet_model::ContainerKind;

use super::State;
use super::pod_worker::PodWorker;
use crate::core::devices::{ContainerDeviceLimits, DeviceAdmission, PodDeviceRequest};
use crate::core::plan::SyncPhase;
use crate::core::pod_spec::PodSpecView;
use crate::core::runtime_state::{ContainerState, PodRuntimeState};
use crate::core::step::{Step, StepKey};

/// The request for a pod's devices; `None` without a spec.
pub(crate) fn pod_request(state: &State, uid: &str) -> Option<PodDeviceRequest> {
    let pod = &state.workers.get(uid)?.pod;
    let active_as_of = clock::since_boot();
    let active = state
        .workers
        .iter()
        .filter(|worker| worker.pod.uid == *uid || may_use_devices(worker));
    Some(PodDeviceRequest {
        active_as_of,
        containers: container_limits(pod.spec.as_ref()?, pod.observed.as_deref()),
        active_pod_uids: active.map(|worker| worker.pod.uid.to_string()).collect(),
        pods_synced: state.node.state.all_synced,
    })
}

fn container_limits(
    spec: &PodSpecView,
    observed: Option<&PodRuntimeState>,
) -> Vec<ContainerDeviceLimits> {
    let is_running = |name: &str| {
        let newest = observed.and_then(|observed| observed.newest_container(name));
        newest.is_some_and(|newest| newest.state == ContainerState::Running)
    };
    let containers = spec.containers.iter();
    let containers = containers.filter(|container| !container.device_limits.is_empty());
    containers
        .map(|container| ContainerDeviceLimits {
            container: container.name.clone(),
            limits: container.device_limits.clone(),
            releases_devices: container.kind == ContainerKind::Init,
            running: is_running(&container.name),
        })
        .collect()
}

/// Whether a pod may still use devices: one that was rejected does not. One that its source has dropped
/// keeps them until its containers have ended; upstream gives them away at once. What a pod without
/// a manifest has requested is not known.
fn may_use_devices(worker: &PodWorker) -> bool {
    let spec = worker.pod.spec.as_ref();
    let ended = matches!(
        worker.plan.phase,
        SyncPhase::Terminated | SyncPhase::CleanedUp
    );
    spec.is_none_or(|spec| spec.requests_devices()) && !ended && !is_rejected(worker)
}

/// Whether a pod was rejected before anything of it was started.
fn is_rejected(worker: &PodWorker) -> bool {
    let pod = &worker.pod;
    let in_flight = pod.in_flight.get(&StepKey::Checkpoint);
    let rejecting =
        in_flight.is_some_and(|call| matches!(call.step, Step::CheckpointTermination(_)));
    let refused = matches!(pod.devices, Some(DeviceAdmission::Refused(_)));
    let observed = pod.observed.as_deref();
    let started =
        pod.checkpoint.request.is_some() || observed.is_some_and(|observed| !observed.is_empty());
    (pod.checkpoint.termination.is_some() || rejecting || refused) && !started
}
