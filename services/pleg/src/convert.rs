use std::collections::{BTreeMap, HashMap};

use polylet_cri::labels::{self, PodLabels};
use polylet_cri::v1;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{Container, ContainerPhase, Resources, RuntimeHandler, Sandbox, User};
use polylet_wire::time;

use crate::core::{ContainerView, Hint, HintKind, Listing, PodView, Polled, SandboxView};

/// The runtime's two lists, by pod. What carries no pod's labels is somebody else's.
pub(crate) fn listing(sandboxes: Vec<v1::PodSandbox>, containers: Vec<v1::Container>) -> Listing {
    let mut pods = Listing::new();
    for sandbox in sandboxes {
        let Some(pod) = PodLabels::read(&sandbox.labels) else {
            continue;
        };
        let view = SandboxView {
            ready: sandbox.state() == v1::PodSandboxState::SandboxReady,
            attempt: sandbox.metadata.map_or(0, |m| m.attempt),
            created_at: sandbox.created_at,
        };
        pod_view(&mut pods, pod).sandboxes.insert(sandbox.id, view);
    }
    for container in containers {
        let Some(pod) = PodLabels::read(&container.labels) else {
            continue;
        };
        let name = name_of(&container.labels, container.metadata.as_ref());
        let view = ContainerView {
            phase: phase(container.state()),
            sandbox_id: container.pod_sandbox_id,
            name,
            attempt: container.metadata.map_or(0, |m| m.attempt),
            created_at: container.created_at,
        };
        pod_view(&mut pods, pod)
            .containers
            .insert(container.id, view);
    }
    pods
}

fn pod_view(pods: &mut BTreeMap<String, PodView>, pod: PodLabels) -> &mut PodView {
    let view = pods.entry(pod.uid.clone()).or_default();
    view.pod = PodRef {
        uid: pod.uid,
        namespace: pod.namespace,
        name: pod.name,
    };
    view
}

fn name_of(labels: &HashMap<String, String>, metadata: Option<&v1::ContainerMetadata>) -> String {
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

pub(crate) fn sandbox(status: v1::PodSandboxStatus) -> Sandbox {
    let ready = status.state() == v1::PodSandboxState::SandboxReady;
    let options = status.linux.and_then(|l| l.namespaces);
    let network = options.and_then(|n| n.options).map(|o| o.network());
    let ips = status.network.into_iter().flat_map(|network| {
        let more = network.additional_ips.into_iter().map(|more| more.ip);
        std::iter::once(network.ip).chain(more)
    });
    Sandbox {
        id: status.id,
        attempt: status.metadata.map_or(0, |m| m.attempt),
        ready,
        ips: ips.filter(|ip| !ip.is_empty()).collect(),
        created_at: at(status.created_at),
        host_network: network == Some(v1::NamespaceMode::Node),
        runtime_handler: status.runtime_handler,
        labels: status.labels.into_iter().collect(),
    }
}

/// `sandbox_id` is not told of a single container; the list has it.
pub(crate) fn container(status: v1::ContainerStatus, sandbox_id: String) -> Container {
    let phase = phase(status.state());
    let image = status.image.unwrap_or_default();
    let resources = status.resources.and_then(|all| all.linux).map(resources);
    let user = status.user.and_then(|user| user.linux).map(|linux| User {
        uid: linux.uid,
        gid: linux.gid,
        supplemental_groups: linux.supplemental_groups,
    });
    Container {
        sandbox_id,
        name: name_of(&status.labels, status.metadata.as_ref()),
        attempt: status.metadata.map_or(0, |m| m.attempt),
        image: if image.user_specified_image.is_empty() {
            image.image
        } else {
            image.user_specified_image
        },
        image_id: status.image_ref,
        phase: phase.into(),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        created_at: at(status.created_at),
        started_at: at(status.started_at),
        finished_at: at(status.finished_at),
        annotations: status.annotations.into_iter().collect(),
        labels: status.labels.into_iter().collect(),
        log_path: status.log_path,
        resources,
        user,
        id: status.id,
    }
}

fn resources(of: v1::LinuxContainerResources) -> Resources {
    Resources {
        cpu_period: of.cpu_period,
        cpu_quota: of.cpu_quota,
        cpu_shares: of.cpu_shares,
        memory_limit: of.memory_limit_in_bytes,
    }
}

/// The first process of a container, out of what the runtime adds in its own words: containerd and
/// CRI-O tell it there.
pub(crate) fn pid(info: &HashMap<String, String>) -> Option<i32> {
    /// Of much more, which is passed over.
    #[derive(serde::Deserialize)]
    struct Info {
        pid: i32,
    }
    let info: Info = serde_json::from_str(info.get("info")?).ok()?;
    (info.pid > 0).then_some(info.pid)
}

fn at(nanos: i64) -> Option<prost_types::Timestamp> {
    time::from_nanos(nanos).map(time::to_wire)
}

pub(crate) fn hint(event: v1::ContainerEventResponse) -> Hint {
    let kind = match event.container_event_type() {
        v1::ContainerEventType::ContainerCreatedEvent
        | v1::ContainerEventType::ContainerStartedEvent => HintKind::Begun,
        v1::ContainerEventType::ContainerStoppedEvent => HintKind::Ended,
        v1::ContainerEventType::ContainerDeletedEvent => HintKind::Removed,
    };
    let pod = event
        .pod_sandbox_status
        .as_ref()
        .and_then(|status| PodLabels::read(&status.labels));
    Hint {
        uid: pod.map(|pod| pod.uid),
        id: event.container_id,
        kind,
        at: time::from_nanos(event.created_at),
    }
}

pub(crate) fn polled(version: v1::VersionResponse, status: v1::StatusResponse) -> Polled {
    let conditions = status.status.unwrap_or_default().conditions;
    let handlers = status.runtime_handlers.into_iter().map(|handler| {
        let features = handler.features.unwrap_or_default();
        RuntimeHandler {
            name: handler.name,
            recursive_read_only_mounts: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        }
    });
    let not = |kind: &str| match conditions.iter().find(|c| c.r#type == kind) {
        Some(condition) if condition.status => None,
        Some(condition) => {
            let parts = [condition.reason.as_str(), condition.message.as_str()];
            let said: Vec<_> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            Some(said.join(": "))
        }
        None => Some(format!("the runtime does not tell {kind}")),
    };
    Polled {
        not_ready: not("RuntimeReady"),
        network_not_ready: not("NetworkReady"),
        name: version.runtime_name,
        version: version.runtime_version,
        handlers: handlers.collect(),
        supplemental_groups_policy: status
            .features
            .is_some_and(|features| features.supplemental_groups_policy),
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
