//! Conversion between wire messages and the types of [`crate::core`].

mod devices;
mod runtime_changes;

pub(crate) use devices::{device_admission, device_request, prepared_devices};
pub(crate) use runtime_changes::{created_sandbox, pending_changes, stopped_container};

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use polylet_model::constants::{annotation, phase, reason};
use polylet_model::hook::Hook;
use polylet_model::quantity::{self, Amount};
use polylet_model::{ResizableResources, node, restart};
use polylet_wire::time::{from_wire_opt, to_wire};
use polylet_wire::{common, eviction, pleg, podconfig, prober, sync, volume};

use crate::core::checkpoint::PodTermination;
use crate::core::node_resources::NodeObject;
use crate::core::plan;
use crate::core::plan::Plan;
use crate::core::plan::{ResizeDecision, ResizeProgress};
use crate::core::runtime_state::{ContainerRecord, ContainerState, PodRuntimeState, SandboxRecord};
use crate::core::view::{PodSyncStatus, ProbeFailure};
use crate::core::volume_state::ObservedVolume;

/// `<namespace>/<name>`, as logs name a pod.
pub(crate) fn pod_name(pod: &common::v1::PodRef) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

/// The runtime's state of a pod.
pub(crate) fn runtime_pod(state: &pleg::v1::PodState) -> PodRuntimeState {
    let mut inspect_error = state.inspect_error.clone();
    let not_said =
        |one: &&pleg::v1::Container| one.phase() == pleg::v1::ContainerPhase::Unspecified;
    if let Some(container) = state.containers.iter().find(not_said) {
        // Other than the state `Unknown`, which the runtime itself reports and which ends in a kill.
        inspect_error = format!(
            "pleg does not say in which state container {} is",
            container.name
        );
    }
    PodRuntimeState {
        sandboxes: state.sandboxes.iter().map(sandbox).collect(),
        containers: state.containers.iter().map(container).collect(),
        observed_at: from_wire_opt(state.observed_at.as_ref()),
        inspect_error,
    }
}

/// A sandbox of a pod's state.
pub(crate) fn sandbox(sandbox: &pleg::v1::Sandbox) -> SandboxRecord {
    SandboxRecord {
        id: sandbox.id.clone(),
        attempt: sandbox.attempt,
        ready: sandbox.ready,
        ips: sandbox.ips.clone(),
        host_network: sandbox.host_network,
        created_at: from_wire_opt(sandbox.created_at.as_ref()),
    }
}

fn container(container: &pleg::v1::Container) -> ContainerRecord {
    use pleg::v1::ContainerPhase as Wire;
    let read = |key: &str| container.annotations.get(key);
    ContainerRecord {
        id: container.id.clone(),
        sandbox_id: container.sandbox_id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        state: match container.phase() {
            Wire::Created => ContainerState::Created,
            Wire::Running => ContainerState::Running,
            Wire::Exited => ContainerState::Exited,
            Wire::Unknown | Wire::Unspecified => ContainerState::Unknown,
        },
        exit_code: container.exit_code,
        reason: container.reason.clone(),
        aborted: restart::start_was_cancelled(&container.reason, &container.message),
        hash: read(annotation::CONTAINER_HASH)
            .cloned()
            .unwrap_or_default(),
        backoff_step: read(annotation::BACK_OFF_STEP)
            .and_then(|v| v.parse().ok())
            .unwrap_or(container.attempt),
        created_resources: read(annotation::CREATED_RESOURCES)
            .and_then(|text| serde_json::from_str(text).ok()),
        grace_period: grace_period(&container.annotations),
        pre_stop: pre_stop(&container.annotations).map(Into::into),
        created_at: from_wire_opt(container.created_at.as_ref()),
        started_at: from_wire_opt(container.started_at.as_ref()),
        finished_at: from_wire_opt(container.finished_at.as_ref()),
    }
}

fn grace_period(annotations: &BTreeMap<String, String>) -> Option<u32> {
    let read = |key: &str| annotations.get(key).and_then(|v| v.parse().ok());
    read(annotation::POD_DELETION_GRACE_PERIOD)
        .or_else(|| read(annotation::POD_TERMINATION_GRACE_PERIOD))
}

fn pre_stop(annotations: &BTreeMap<String, String>) -> Option<Hook> {
    let handler = annotations.get(annotation::PRE_STOP_HANDLER)?;
    let ports = annotations.get(annotation::PORTS).map(String::as_str);
    Hook::from_annotations(handler, ports)
}

/// The state of a pod's volumes.
pub(crate) fn observed_volumes(state: &volume::v1::PodVolumes) -> Vec<ObservedVolume> {
    use volume::v1::VolumePhase as Wire;
    let one = |v: &volume::v1::Volume| ObservedVolume {
        name: v.name.clone(),
        mounted: v.phase() == Wire::Mounted,
        imminent: v.phase() == Wire::Waiting && v.imminent,
        gone: v.phase() == Wire::Gone,
        host_path: v.host_path.clone(),
        message: v.message.clone(),
        rejection_reason: v.rejection_reason.clone(),
        supplemental_group: v.supplemental_group,
    };
    state.volumes.iter().map(one).collect()
}

/// The result of a startup or liveness probe that decisions depend on.
pub(crate) enum ProbeUpdate {
    /// The startup probe succeeded.
    Started,
    /// The startup or liveness probe failed.
    Failed(ProbeFailure),
}

/// The result of a probe; `None` if no decision depends on it.
pub(crate) fn probe_update(kind: i32, status: &prober::v1::ProbeStatus) -> Option<ProbeUpdate> {
    use prober::v1::{Outcome, ProbeKind};
    match (ProbeKind::try_from(kind), status.outcome()) {
        (Ok(ProbeKind::Startup), Outcome::Success) => Some(ProbeUpdate::Started),
        (Ok(kind @ (ProbeKind::Startup | ProbeKind::Liveness)), Outcome::Failure) => {
            Some(ProbeUpdate::Failed(ProbeFailure {
                startup: kind == ProbeKind::Startup,
                message: status.message.clone(),
            }))
        }
        _ => None,
    }
}

impl ProbeUpdate {
    /// Whether the container has to be killed.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, ProbeUpdate::Failed(_))
    }

    /// Applies the result for a container, given by ID.
    pub(crate) fn apply_to(self, pod: &mut PodSyncStatus, container: &str) {
        match self {
            ProbeUpdate::Started => {
                pod.startup_succeeded.insert(container.to_owned());
            }
            ProbeUpdate::Failed(failure) => {
                pod.probe_failures.insert(container.to_owned(), failure);
            }
        }
    }
}

/// The termination that follows from an eviction.
pub(crate) fn eviction(eviction: &eviction::v1::Eviction, now: Timestamp) -> PodTermination {
    PodTermination {
        reason: reason::EVICTED.to_owned(),
        message: eviction.message.clone(),
        phase: phase::FAILED.to_owned(),
        disruption_target: eviction.disruption_target,
        decided_at: from_wire_opt(eviction.decided_at.as_ref()).unwrap_or(now),
        grace_period: Some(eviction.grace_seconds),
    }
}

/// The termination of a pod whose status in the cluster has a terminal phase.
pub(crate) fn reported_termination(
    pod: &podconfig::v1::Pod,
    now: Timestamp,
) -> Option<PodTermination> {
    use podconfig::v1::TerminalPhase as Wire;
    let phase = match pod.terminal_phase() {
        // Also one that this build does not know: a pod is not ended on a guess.
        Wire::Unspecified => return None,
        Wire::Succeeded => phase::SUCCEEDED,
        Wire::Failed => phase::FAILED,
    };
    Some(PodTermination {
        reason: String::new(),
        message: String::new(),
        phase: phase.to_owned(),
        disruption_target: false,
        decided_at: now,
        grace_period: None,
    })
}

/// What admission needs of the node's object, and the addresses in its status. An unknown state is not
/// the absence of the object.
pub(crate) fn node_object(
    response: &podconfig::v1::WatchNodeResponse,
) -> Result<(NodeObject, Vec<String>), serde_json::Error> {
    use podconfig::v1::watch_node_response::State;
    let json = match &response.state {
        Some(State::Manifest(json)) => json,
        Some(State::Absent(_)) => return Ok((NodeObject::Absent, Vec::new())),
        None => return Ok((NodeObject::NotSynced, Vec::new())),
    };
    let node: k8s_openapi::api::core::v1::Node = serde_json::from_slice(json)?;
    let host_ips = node.status.as_ref().map(node::host_ips).unwrap_or_default();
    let allocatable = node.status.and_then(|status| status.allocatable);
    let number =
        |(name, amount): (&String, &Amount)| (name.clone(), node::resource_value(name, *amount));
    let object = NodeObject::Present {
        labels: node.metadata.labels.unwrap_or_default(),
        taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
        allocatable: quantity::parse_list(allocatable.as_ref())
            .iter()
            .map(number)
            .collect(),
    };
    Ok((object, host_ips))
}

/// What a published status has beside the pod's state and plan.
pub(crate) struct PodSyncContext<'a> {
    /// Name, namespace and UID.
    pub(crate) pod: &'a common::v1::PodRef,
    /// Digest of the last manifest that was in sync.
    pub(crate) digest_synced: &'a str,
    /// The manifest of a pod that its source no longer serves.
    pub(crate) last_manifest: Option<&'a Bytes>,
    /// The span of the last step.
    pub(crate) cause: Option<&'a common::v1::Cause>,
}

/// The published status of a pod.
pub(crate) fn pod_sync(
    context: &PodSyncContext<'_>,
    pod: &PodSyncStatus,
    plan: &Plan,
) -> sync::v1::PodSync {
    sync::v1::PodSync {
        r#ref: Some(context.pod.clone()),
        phase: sync_phase(plan.phase).into(),
        digest_synced: context.digest_synced.to_owned(),
        containers: plan
            .waiting_containers
            .iter()
            .map(|waiting| container_status(pod, waiting))
            .collect(),
        terminal: pod.checkpoint.termination.as_ref().map(terminal),
        cause: context.cause.cloned(),
        waiting_for: plan.waiting_for.iter().map(waiting_for).collect(),
        acknowledged_at: pod.checkpoint.acknowledged_at.map(to_wire),
        last_manifest: context.last_manifest.cloned().unwrap_or_default(),
        needs_sandbox: plan.needs_sandbox,
        resize_pending: resize_pending(pod, plan),
        allocated: allocated(pod, plan).into(),
        resize_progress: plan
            .resize_progress
            .as_ref()
            .map(|progress| resize_progress(pod, progress)),
        unadmitted: plan.unadmitted,
        // Set when it is published.
        image_pull_time: None,
        reclaimed: plan.reclaimed,
    }
}

fn resize_pending(pod: &PodSyncStatus, plan: &Plan) -> Option<sync::v1::ResizePending> {
    let ResizeDecision::Pending { reason, message } = &plan.resize else {
        return None;
    };
    Some(sync::v1::ResizePending {
        reason: (*reason).to_owned(),
        message: message.clone(),
        since: pod.resize_pending_since.map(to_wire),
    })
}

fn resize_progress(pod: &PodSyncStatus, progress: &ResizeProgress) -> sync::v1::ResizeProgress {
    let requirements = |resources: &ResizableResources| {
        let mut requirements = ResourceRequirements::default();
        resources.apply_to(&mut requirements);
        requirements
    };
    let actual = progress.actual.iter();
    let actual: BTreeMap<&String, _> = actual.map(|(name, r)| (name, requirements(r))).collect();
    sync::v1::ResizeProgress {
        error: progress.error.clone(),
        since: pod.resize_started_at.map(to_wire),
        generation: progress.generation,
        actual: serde_json::to_vec(&actual).unwrap_or_default().into(),
    }
}

/// The pod's allocated resources as JSON; empty while they are those of its manifest.
fn allocated(pod: &PodSyncStatus, plan: &Plan) -> Vec<u8> {
    let allocated = pod.checkpoint.allocated.as_deref();
    let allocated = allocated.filter(|_| plan.resize != ResizeDecision::NoChange);
    allocated
        .and_then(|allocated| serde_json::to_vec(allocated).ok())
        .unwrap_or_default()
}

fn sync_phase(phase: plan::SyncPhase) -> sync::v1::SyncPhase {
    use sync::v1::SyncPhase as Wire;
    match phase {
        plan::SyncPhase::Pending => Wire::Unspecified,
        plan::SyncPhase::Syncing => Wire::Syncing,
        plan::SyncPhase::Terminating => Wire::Terminating,
        plan::SyncPhase::Terminated => Wire::Terminated,
        plan::SyncPhase::CleanedUp => Wire::CleanedUp,
    }
}

fn container_status(
    pod: &PodSyncStatus,
    waiting: &plan::ContainerWaiting,
) -> sync::v1::ContainerSyncStatus {
    let newest = pod
        .observed
        .as_ref()
        .and_then(|o| o.newest_container(&waiting.container));
    sync::v1::ContainerSyncStatus {
        name: waiting.container.clone(),
        waiting_reason: waiting.reason.clone(),
        message: waiting.message.clone(),
        restarts: newest
            .map(|c| c.attempt)
            .or_else(|| {
                Some(
                    pod.lifecycle
                        .pending_restarts
                        .get(&waiting.container)?
                        .attempt,
                )
            })
            .unwrap_or(0),
        retry_at: waiting.retry_at.map(to_wire),
    }
}

fn terminal(termination: &PodTermination) -> sync::v1::Terminal {
    sync::v1::Terminal {
        reason: termination.reason.clone(),
        message: termination.message.clone(),
        decided_at: Some(to_wire(termination.decided_at)),
        phase: termination.phase.clone(),
        disruption_target: termination.disruption_target,
    }
}

fn waiting_for(waiting: &plan::WaitingFor) -> sync::v1::WaitingFor {
    sync::v1::WaitingFor {
        what: waiting.what.clone(),
        since: waiting.since.map(to_wire),
        error: waiting.error.clone(),
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
