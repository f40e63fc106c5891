//! CRI messages to domain types, and domain types to wire messages.

use std::collections::{BTreeMap, HashMap};

use polylet_cri::labels::{self, PodLabels};
use polylet_cri::v1;
use polylet_model::status::ContainerPhase;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1 as wire;
use polylet_wire::time::{from_nanos, to_wire};

use crate::core::{
    ContainerStatus, ContainerUser, HealthCheck, LinuxResources, ListedContainer, ListedPod,
    ListedSandbox, PodIdentity, PodListing, PodStatus, RecordChange, RuntimeEvent,
    RuntimeEventKind, RuntimeHandler, RuntimeStatus, SandboxStatus,
};

/// The runtime's two lists, by pod. Entries without a pod's labels are not ours.
pub(crate) fn listing(
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
) -> PodListing {
    let mut pods = PodListing::new();
    for sandbox in sandboxes {
        let Some(labels) = PodLabels::read(&sandbox.labels) else {
            continue;
        };
        let listed = ListedSandbox {
            ready: sandbox.state() == v1::PodSandboxState::SandboxReady,
            attempt: sandbox.metadata.map_or(0, |m| m.attempt),
            created_at: from_nanos(sandbox.created_at),
        };
        let pod = listed_pod(&mut pods, labels);
        pod.sandboxes.insert(sandbox.id, listed);
    }
    for container in containers {
        let Some(labels) = PodLabels::read(&container.labels) else {
            continue;
        };
        let name = container_name(&container.labels, container.metadata.as_ref());
        let listed = ListedContainer {
            phase: phase(container.state()),
            sandbox_id: container.pod_sandbox_id,
            name,
            attempt: container.metadata.map_or(0, |m| m.attempt),
            created_at: from_nanos(container.created_at),
        };
        let pod = listed_pod(&mut pods, labels);
        pod.containers.insert(container.id, listed);
    }
    pods
}

fn listed_pod(pods: &mut PodListing, labels: PodLabels) -> &mut ListedPod {
    let pod = identity_of(labels);
    let listed = pods.entry(pod.uid.clone()).or_default();
    listed.pod = pod;
    listed
}

fn identity_of(labels: PodLabels) -> PodIdentity {
    PodIdentity {
        uid: labels.uid.into(),
        namespace: labels.namespace,
        name: labels.name,
    }
}

pub(crate) fn pod_identity(pod: PodRef) -> PodIdentity {
    PodIdentity {
        uid: pod.uid.into(),
        namespace: pod.namespace,
        name: pod.name,
    }
}

/// The pod of a refresh and the changes that alone are to be inspected; none if everything is, as when
/// a change is of a kind that this build does not know.
pub(crate) fn refresh_scope(request: wire::RefreshPodRequest) -> (PodIdentity, Vec<RecordChange>) {
    let changes: Option<Vec<_>> = request.changes.into_iter().map(record_change).collect();
    match (request.pod, changes) {
        (Some(pod), Some(changes)) if pod.uid == request.uid => (pod_identity(pod), changes),
        _ => {
            let pod = PodIdentity {
                uid: request.uid.into(),
                ..Default::default()
            };
            (pod, Vec::new())
        }
    }
}

fn record_change(change: wire::RuntimeChange) -> Option<RecordChange> {
    let kind = match change.kind() {
        wire::RuntimeChangeKind::Unspecified => return None,
        wire::RuntimeChangeKind::Created => RuntimeEventKind::Created,
        wire::RuntimeChangeKind::Started => RuntimeEventKind::Started,
        wire::RuntimeChangeKind::Stopped => RuntimeEventKind::Stopped,
        wire::RuntimeChangeKind::Removed => RuntimeEventKind::Deleted,
    };
    (!change.id.is_empty()).then_some(RecordChange {
        id: change.id,
        sandbox_id: change.sandbox_id,
        kind,
    })
}

fn container_name(
    labels: &HashMap<String, String>,
    metadata: Option<&v1::ContainerMetadata>,
) -> String {
    labels::container_name(labels)
        .map(str::to_owned)
        .or_else(|| metadata.map(|m| m.name.clone()))
        .unwrap_or_default()
}

fn phase(state: v1::ContainerState) -> ContainerPhase {
    match state {
        v1::ContainerState::ContainerCreated => ContainerPhase::Created,
        v1::ContainerState::ContainerRunning => ContainerPhase::Running,
        v1::ContainerState::ContainerExited => ContainerPhase::Exited,
        v1::ContainerState::ContainerUnknown => ContainerPhase::Unknown,
    }
}

fn sorted(map: HashMap<String, String>) -> Box<[(String, String)]> {
    let mut sorted: Box<[_]> = map.into_iter().collect();
    sorted.sort_unstable();
    sorted
}

pub(crate) fn sandbox(status: v1::PodSandboxStatus) -> SandboxStatus {
    let ready = status.state() == v1::PodSandboxState::SandboxReady;
    let namespaces = status.linux.and_then(|linux| linux.namespaces);
    let network = namespaces.and_then(|n| n.options).map(|o| o.network());
    let ips = status.network.into_iter().flat_map(|network| {
        let additional = network.additional_ips.into_iter().map(|ip| ip.ip);
        std::iter::once(network.ip).chain(additional)
    });
    SandboxStatus {
        id: status.id,
        attempt: status.metadata.map_or(0, |m| m.attempt),
        ready,
        ips: ips.filter(|ip| !ip.is_empty()).collect(),
        created_at: from_nanos(status.created_at),
        host_network: network == Some(v1::NamespaceMode::Node),
        runtime_handler: status.runtime_handler,
    }
}

/// `sandbox_id` is only part of the list.
pub(crate) fn container(status: v1::ContainerStatus, sandbox_id: String) -> ContainerStatus {
    let phase = phase(status.state());
    let image = status.image.unwrap_or_default();
    let resources = status.resources.and_then(|all| all.linux);
    let user = status.user.and_then(|user| user.linux);
    ContainerStatus {
        sandbox_id,
        name: container_name(&status.labels, status.metadata.as_ref()),
        attempt: status.metadata.map_or(0, |m| m.attempt),
        image: if image.user_specified_image.is_empty() {
            image.image
        } else {
            image.user_specified_image
        },
        image_id: status.image_ref,
        phase,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        created_at: from_nanos(status.created_at),
        started_at: from_nanos(status.started_at),
        finished_at: from_nanos(status.finished_at),
        annotations: sorted(status.annotations),
        log_path: status.log_path,
        resources: resources.map(|linux| LinuxResources {
            cpu_period: linux.cpu_period,
            cpu_quota: linux.cpu_quota,
            cpu_shares: linux.cpu_shares,
            memory_limit: linux.memory_limit_in_bytes,
        }),
        user: user.map(|linux| ContainerUser {
            uid: linux.uid,
            gid: linux.gid,
            supplemental_groups: linux.supplemental_groups,
        }),
        id: status.id,
    }
}

/// The first process of a container, from the verbose information of containerd and CRI-O.
pub(crate) fn pid(info: &HashMap<String, String>) -> Option<i32> {
    #[derive(serde::Deserialize)]
    struct Info {
        pid: i32,
    }
    let info: Info = serde_json::from_str(info.get("info")?).ok()?;
    (info.pid > 0).then_some(info.pid)
}

pub(crate) fn event(event: v1::ContainerEventResponse) -> RuntimeEvent {
    let kind = match event.container_event_type() {
        v1::ContainerEventType::ContainerCreatedEvent => RuntimeEventKind::Created,
        v1::ContainerEventType::ContainerStartedEvent => RuntimeEventKind::Started,
        v1::ContainerEventType::ContainerStoppedEvent => RuntimeEventKind::Stopped,
        v1::ContainerEventType::ContainerDeletedEvent => RuntimeEventKind::Deleted,
    };
    let labels = event
        .pod_sandbox_status
        .as_ref()
        .and_then(|status| PodLabels::read(&status.labels));
    RuntimeEvent {
        pod: labels.map(identity_of),
        id: event.container_id,
        kind,
        at: from_nanos(event.created_at),
        sandbox: event.pod_sandbox_status.map(sandbox),
    }
}

pub(crate) fn health_check(
    version: v1::VersionResponse,
    status: v1::StatusResponse,
) -> HealthCheck {
    let conditions = status.status.unwrap_or_default().conditions;
    let handlers = status.runtime_handlers.into_iter().map(|handler| {
        let features = handler.features.unwrap_or_default();
        RuntimeHandler {
            name: handler.name,
            recursive_read_only_mounts: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        }
    });
    let not_true = |kind: &str| match conditions.iter().find(|c| c.r#type == kind) {
        Some(condition) if condition.status => None,
        Some(condition) => {
            let parts = [condition.reason.as_str(), condition.message.as_str()];
            let parts: Vec<_> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            Some(parts.join(": "))
        }
        None => Some(format!("the runtime does not report {kind}")),
    };
    HealthCheck {
        not_ready: not_true("RuntimeReady"),
        network_not_ready: not_true("NetworkReady"),
        name: version.runtime_name,
        version: version.runtime_version,
        handlers: handlers.collect(),
        supplemental_groups_policy: status
            .features
            .is_some_and(|features| features.supplemental_groups_policy),
    }
}

/// A pod as it is published, without time and cause.
pub(crate) fn pod_state(status: PodStatus) -> wire::PodState {
    wire::PodState {
        r#ref: Some(PodRef {
            uid: status.pod.uid.into(),
            namespace: status.pod.namespace,
            name: status.pod.name,
        }),
        sandboxes: status.sandboxes.into_iter().map(sandbox_to_wire).collect(),
        containers: status
            .containers
            .into_iter()
            .map(container_to_wire)
            .collect(),
        inspect_error: status.inspect_error,
        observed_at: None,
        cause: None,
    }
}

fn sandbox_to_wire(status: SandboxStatus) -> wire::Sandbox {
    wire::Sandbox {
        id: status.id,
        attempt: status.attempt,
        ready: status.ready,
        ips: status.ips,
        created_at: status.created_at.map(to_wire),
        host_network: status.host_network,
        runtime_handler: status.runtime_handler,
        labels: BTreeMap::new(),
    }
}

fn container_to_wire(status: ContainerStatus) -> wire::Container {
    let phase = match status.phase {
        ContainerPhase::Created => wire::ContainerPhase::Created,
        ContainerPhase::Running => wire::ContainerPhase::Running,
        ContainerPhase::Exited => wire::ContainerPhase::Exited,
        ContainerPhase::Unknown => wire::ContainerPhase::Unknown,
    };
    wire::Container {
        id: status.id,
        sandbox_id: status.sandbox_id,
        name: status.name,
        attempt: status.attempt,
        image: status.image,
        image_id: status.image_id,
        phase: phase.into(),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        created_at: status.created_at.map(to_wire),
        started_at: status.started_at.map(to_wire),
        finished_at: status.finished_at.map(to_wire),
        annotations: status.annotations.into_iter().collect(),
        labels: BTreeMap::new(),
        log_path: status.log_path,
        resources: status.resources.map(|resources| wire::Resources {
            cpu_period: resources.cpu_period,
            cpu_quota: resources.cpu_quota,
            cpu_shares: resources.cpu_shares,
            memory_limit: resources.memory_limit,
        }),
        user: status.user.map(|user| wire::User {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups,
        }),
    }
}

pub(crate) fn runtime_status(status: &RuntimeStatus) -> wire::WatchRuntimeResponse {
    let handlers = status.handlers.iter().map(|handler| wire::RuntimeHandler {
        name: handler.name.clone(),
        recursive_read_only_mounts: handler.recursive_read_only_mounts,
        user_namespaces: handler.user_namespaces,
    });
    wire::WatchRuntimeResponse {
        ready: status.ready,
        reason: status.reason.clone(),
        last_relist_at: status.last_relist_at.map(to_wire),
        network_ready: status.network_ready,
        network_reason: status.network_reason.clone(),
        runtime_name: status.runtime_name.clone(),
        runtime_version: status.runtime_version.clone(),
        events: status.events,
        handlers: handlers.collect(),
        supplemental_groups_policy: status.supplemental_groups_policy,
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
