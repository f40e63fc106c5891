//! Wire messages to facts, and published statuses to wire messages.

use k8s_openapi::api::core::v1::LinuxContainerUser;
use polylet_model::probe::ProbeKind;
use polylet_model::status::{
    self, ActualResources, ContainerPhase, DeviceStatus, PendingResize, PodWorkerState,
    ResizeInProgress, WaitReason,
};
use polylet_model::{ContainerId, Manifest, PodUid};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::device::v1 as device;
use polylet_wire::pleg::v1 as pleg;
use polylet_wire::podconfig::v1::watch_node_response;
use polylet_wire::prober::v1 as prober;
use polylet_wire::status::v1 as wire;
use polylet_wire::sync::v1 as sync;
use polylet_wire::{podconfig, time};

use crate::core::facts::{RuntimePodState, SyncProgress};
use crate::core::mirror::{MirrorPod, NodeRef};
use crate::core::normal_form;
use crate::core::published::PublishedStatus;
use crate::core::shared_status::SharedStatus;

pub(crate) fn sync_progress(sync: &sync::PodSync) -> SyncProgress {
    let worker_state = match sync.phase() {
        sync::SyncPhase::Unspecified | sync::SyncPhase::Syncing => PodWorkerState::Syncing,
        sync::SyncPhase::Terminating => PodWorkerState::Terminating,
        sync::SyncPhase::Terminated | sync::SyncPhase::CleanedUp => PodWorkerState::Terminated,
    };
    let cleaned_up = sync.phase() == sync::SyncPhase::CleanedUp;
    SyncProgress {
        worker_state,
        reclaimed: sync.reclaimed || cleaned_up,
        cleaned_up,
        wait_reasons: sync.containers.iter().map(wait_reason).collect(),
        terminal: sync.terminal.as_ref().map(terminal),
        resize_pending: sync.resize_pending.as_ref().map(resize_pending),
        resize_in_progress: sync.resize_progress.as_ref().map(resize_in_progress),
        allocated: serde_json::from_slice(&sync.allocated).ok(),
        acknowledged_at: time::from_wire_opt(sync.acknowledged_at.as_ref()),
        last_manifest: Manifest::from_json(&sync.last_manifest).ok(),
        waiting_for: sync.waiting_for.iter().map(waiting_for).collect(),
        unadmitted: sync.unadmitted,
        image_pull_time: sync
            .image_pull_time
            .and_then(|time| time.try_into().ok())
            .unwrap_or_default(),
    }
}

fn wait_reason(container: &sync::ContainerSyncStatus) -> WaitReason {
    WaitReason {
        container: container.name.clone(),
        reason: container.waiting_reason.clone(),
        message: container.message.clone(),
        restarts: container.restarts,
    }
}

fn resize_pending(pending: &sync::ResizePending) -> PendingResize {
    PendingResize {
        reason: pending.reason.clone(),
        message: pending.message.clone(),
        since: time::from_wire_opt(pending.since.as_ref()),
    }
}

fn resize_in_progress(progress: &sync::ResizeProgress) -> ResizeInProgress {
    ResizeInProgress {
        error: progress.error.clone(),
        since: time::from_wire_opt(progress.since.as_ref()),
        generation: progress.generation,
        actual: serde_json::from_slice(&progress.actual).unwrap_or_default(),
    }
}

fn terminal(decision: &sync::Terminal) -> status::TerminalDecision {
    status::TerminalDecision {
        phase: decision.phase.clone(),
        reason: decision.reason.clone(),
        message: decision.message.clone(),
        decided_at: time::from_wire_opt(decision.decided_at.as_ref()),
        disruption_target: decision.disruption_target,
    }
}

fn waiting_for(step: &sync::WaitingFor) -> String {
    let mut text = step.what.clone();
    if let Some(since) = time::from_wire_opt(step.since.as_ref()) {
        text.push_str(&format!(" since {since:.0}"));
    }
    if !step.error.is_empty() {
        text.push_str(": ");
        text.push_str(&step.error);
    }
    text
}

pub(crate) fn runtime_state(state: &pleg::PodState) -> RuntimePodState {
    RuntimePodState {
        sandboxes: state.sandboxes.iter().map(sandbox).collect(),
        containers: state.containers.iter().map(container).collect(),
        inspect_error: state.inspect_error.clone(),
    }
}

fn sandbox(sandbox: &pleg::Sandbox) -> status::RuntimeSandbox {
    status::RuntimeSandbox {
        id: sandbox.id.clone().into(),
        attempt: sandbox.attempt,
        ready: sandbox.ready,
        ips: sandbox.ips.clone(),
        created_at: time::from_wire_opt(sandbox.created_at.as_ref()),
        host_network: sandbox.host_network,
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

fn container(container: &pleg::Container) -> status::RuntimeContainer {
    let phase = match container.phase() {
        pleg::ContainerPhase::Created => ContainerPhase::Created,
        pleg::ContainerPhase::Running => ContainerPhase::Running,
        pleg::ContainerPhase::Exited => ContainerPhase::Exited,
        pleg::ContainerPhase::Unspecified | pleg::ContainerPhase::Unknown => {
            ContainerPhase::Unknown
        }
    };
    status::RuntimeContainer {
        id: container.id.clone().into(),
        sandbox_id: container.sandbox_id.clone().into(),
        name: container.name.clone(),
        attempt: container.attempt,
        image: container.image.clone(),
        image_id: container.image_id.clone(),
        phase,
        exit_code: container.exit_code,
        reason: container.reason.clone(),
        message: container.message.clone(),
        created_at: time::from_wire_opt(container.created_at.as_ref()),
        started_at: time::from_wire_opt(container.started_at.as_ref()),
        finished_at: time::from_wire_opt(container.finished_at.as_ref()),
        actual: container.resources.as_ref().and_then(|has| {
            ActualResources::from_kernel(
                has.cpu_shares,
                has.cpu_quota,
                has.cpu_period,
                has.memory_limit,
            )
        }),
        user: container.user.as_ref().map(|user| LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone())
                .filter(|groups| !groups.is_empty()),
        }),
    }
}

/// The kind of a probe; `None` if this build does not know it.
pub(crate) fn probe_kind(kind: i32) -> Option<ProbeKind> {
    match prober::ProbeKind::try_from(kind) {
        Ok(prober::ProbeKind::Startup) => Some(ProbeKind::Startup),
        Ok(prober::ProbeKind::Liveness) => Some(ProbeKind::Liveness),
        Ok(prober::ProbeKind::Readiness) => Some(ProbeKind::Readiness),
        Ok(prober::ProbeKind::Unspecified) | Err(_) => None,
    }
}

/// The result of a probe; `None` if this build does not know the outcome, which is no failure.
pub(crate) fn probe_result(
    container_id: &ContainerId,
    kind: ProbeKind,
    result: &prober::ProbeStatus,
) -> Option<status::ContainerProbeResult> {
    let success = match result.outcome() {
        prober::Outcome::Success => true,
        prober::Outcome::Failure => false,
        prober::Outcome::Unknown | prober::Outcome::Unspecified => return None,
    };
    Some(status::ContainerProbeResult {
        container_id: container_id.clone(),
        kind,
        success,
        since: time::from_wire_opt(result.since.as_ref()),
    })
}

/// The devices of a pod's containers.
pub(crate) fn devices(pod: device::PodDevices) -> Vec<DeviceStatus> {
    let mut devices = Vec::new();
    for container in pod.containers {
        for resource in container.resources {
            devices.extend(resource.devices.into_iter().map(|device| DeviceStatus {
                container: container.name.clone(),
                resource: resource.resource.clone(),
                id: device.id,
                healthy: device.healthy,
            }));
        }
    }
    devices
}

/// A pod's status at the API server; `None` while it is unknown.
pub(crate) fn api_status(status: &[u8], uid: &PodUid) -> Option<SharedStatus> {
    if status.is_empty() {
        return None;
    }
    let status = serde_json::from_slice(status);
    status
        .inspect_err(|error| {
            tracing::warn!(pod_uid = uid.as_str(), %error, "invalid pod status from API server; ignored");
        })
        .ok()
        .map(normal_form::normalized)
}

pub(crate) fn mirror_pod(uid: &PodUid, mirror: &podconfig::v1::MirrorPod) -> MirrorPod {
    let name = mirror.r#ref.clone().unwrap_or_default();
    MirrorPod {
        uid: uid.clone(),
        namespace: name.namespace,
        name: name.name,
        source_hash: mirror.source_pod_uid.clone(),
        deleting: mirror.deleting,
        status: api_status(&mirror.reported_status, uid),
    }
}

/// This node's object; `None` if it does not exist or is invalid.
pub(crate) fn node_ref(response: &podconfig::v1::WatchNodeResponse) -> Option<NodeRef> {
    let Some(watch_node_response::State::Manifest(manifest)) = &response.state else {
        return None;
    };
    let node: Result<k8s_openapi::api::core::v1::Node, _> = serde_json::from_slice(manifest);
    let metadata = match node {
        Ok(node) => node.metadata,
        Err(error) => {
            tracing::warn!(%error, "invalid Node from API server; ignored");
            return None;
        }
    };
    Some(NodeRef {
        name: metadata.name?,
        uid: metadata.uid?,
        deleting: metadata.deletion_timestamp.is_some(),
    })
}

/// The addresses in the Node's status, one of each family.
pub(crate) fn host_ips(response: &podconfig::v1::WatchNodeResponse) -> Vec<String> {
    let Some(watch_node_response::State::Manifest(manifest)) = &response.state else {
        return Vec::new();
    };
    let node = serde_json::from_slice::<k8s_openapi::api::core::v1::Node>(manifest).ok();
    let status = node.and_then(|node| node.status);
    status
        .as_ref()
        .map(polylet_model::node::host_ips)
        .unwrap_or_default()
}

/// A published status on the wire.
pub(crate) fn pod_status(published: &PublishedStatus, cause: Cause) -> wire::PodStatus {
    let manifest = &published.manifest;
    wire::PodStatus {
        r#ref: Some(PodRef {
            uid: manifest.uid().to_string(),
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
        }),
        status: published.status.json(),
        manifest: manifest.raw().clone(),
        cause: Some(cause),
        waiting_for: published.waiting_for.clone(),
        stale: published.stale.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn devices_of_all_containers() {
        let allocated = |id: &str, healthy| device::AllocatedDevice {
            id: id.to_owned(),
            healthy,
            ..Default::default()
        };
        let container = |name: &str, resource: &str, devices| device::ContainerDevices {
            name: name.to_owned(),
            resources: vec![device::ResourceDevices {
                resource: resource.to_owned(),
                devices,
            }],
        };
        let pod = device::PodDevices {
            pod_uid: "u".to_owned(),
            containers: vec![
                container("a", "x", vec![allocated("1", true), allocated("2", false)]),
                container("b", "y", vec![allocated("1", true)]),
                container("c", "z", Vec::new()),
            ],
        };
        let found: Vec<_> = devices(pod)
            .into_iter()
            .map(|it| (it.container, it.resource, it.id, it.healthy))
            .collect();
        let expected = [
            ("a", "x", "1", true),
            ("a", "x", "2", false),
            ("b", "y", "1", true),
        ];
        let expected = expected.map(|(container, resource, id, healthy)| {
            (
                container.to_owned(),
                resource.to_owned(),
                id.to_owned(),
                healthy,
            )
        });
        assert_eq!(found, expected);
    }

    proptest! {
        /// None of them may end a pod or take it out of service: what a newer peer means is not known.
        #[test]
        fn numbers_of_newer_peers_decide_nothing(
            number in prop_oneof![i32::MIN..0, 50..i32::MAX]
        ) {
            prop_assert_eq!(probe_kind(number), None);
            let result = prober::ProbeStatus { outcome: number, ..Default::default() };
            prop_assert!(probe_result(&"c".into(), ProbeKind::Readiness, &result).is_none());
            let sync = sync::PodSync { phase: number, ..Default::default() };
            let progress = sync_progress(&sync);
            prop_assert_eq!(progress.worker_state, PodWorkerState::Syncing);
            prop_assert!(!progress.cleaned_up);
        }
    }
}
