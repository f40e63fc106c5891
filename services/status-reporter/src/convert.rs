//! From the wire to facts, and from what is told to the wire.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{LinuxContainerUser, PodStatus};
use polylet_model::Manifest;
use polylet_model::probe::ProbeKind;
use polylet_model::status::{self, Actual, ContainerPhase, Note, PendingResize, Resizing, Stage};
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::pleg::v1 as pleg;
use polylet_wire::podconfig::v1::watch_node_response;
use polylet_wire::prober::v1 as prober;
use polylet_wire::status::v1 as wire;
use polylet_wire::sync::v1 as sync;
use polylet_wire::{podconfig, time};

use crate::core::facts::{Held, Progress, Wanted};
use crate::core::join::Told;
use crate::core::mirror::{Mirror, Node};

/// A pod that should run; a manifest that cannot be read is told once and left out.
pub(crate) fn wanted(pod: &podconfig::v1::Pod) -> Option<Wanted> {
    match Manifest::of_bytes(pod.manifest.clone()) {
        Ok(manifest) => Some(Wanted {
            manifest,
            stale: pod.stale_since.is_some(),
        }),
        Err(error) => {
            let uid = pod.r#ref.as_ref().map_or("", |pod| pod.uid.as_str());
            tracing::error!(
                k8s.pod.uid = uid,
                "no status for a pod: {}",
                polylet_kit::report(&error)
            );
            None
        }
    }
}

pub(crate) fn progress(sync: &sync::PodSync) -> Progress {
    let stage = match sync.phase() {
        sync::SyncPhase::Unspecified | sync::SyncPhase::Syncing => Stage::Syncing,
        sync::SyncPhase::Terminating => Stage::Terminating,
        sync::SyncPhase::Terminated | sync::SyncPhase::Reclaimed => Stage::Terminated,
    };
    Progress {
        stage,
        reclaimed: sync.phase() == sync::SyncPhase::Reclaimed,
        notes: sync.containers.iter().map(note).collect(),
        terminal: sync.terminal.as_ref().map(terminal),
        resize: sync.resize_pending.as_ref().map(resize),
        resizing: sync.resize_progress.as_ref().map(resizing),
        allocated: serde_json::from_slice(&sync.allocated).ok(),
        acknowledged_at: time::from_wire_opt(sync.acknowledged_at.as_ref()),
        last_manifest: Manifest::from_json(&sync.last_manifest).ok(),
        waiting_for: sync.waiting_for.iter().map(waiting_for).collect(),
        unadmitted: sync.unadmitted,
    }
}

fn note(note: &sync::ContainerNote) -> Note {
    Note {
        container: note.name.clone(),
        reason: note.waiting_reason.clone(),
        message: note.message.clone(),
        restarts: note.restarts,
    }
}

fn resize(pending: &sync::ResizePending) -> PendingResize {
    PendingResize {
        reason: pending.reason.clone(),
        message: pending.message.clone(),
        since: time::from_wire_opt(pending.since.as_ref()),
    }
}

fn resizing(progress: &sync::ResizeProgress) -> Resizing {
    Resizing {
        error: progress.error.clone(),
        since: time::from_wire_opt(progress.since.as_ref()),
        generation: progress.generation,
        actual: serde_json::from_slice(&progress.actual).unwrap_or_default(),
    }
}

fn terminal(terminal: &sync::Terminal) -> status::Terminal {
    status::Terminal {
        phase: terminal.phase.clone(),
        reason: terminal.reason.clone(),
        message: terminal.message.clone(),
        decided_at: time::from_wire_opt(terminal.decided_at.as_ref()),
        disruption_target: terminal.disruption_target,
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

pub(crate) fn held(state: &pleg::PodState) -> Held {
    Held {
        sandboxes: state.sandboxes.iter().map(sandbox).collect(),
        containers: state.containers.iter().map(container).collect(),
        inspect_error: state.inspect_error.clone(),
    }
}

fn sandbox(sandbox: &pleg::Sandbox) -> status::Sandbox {
    status::Sandbox {
        id: sandbox.id.clone().into(),
        attempt: sandbox.attempt,
        ready: sandbox.ready,
        ips: sandbox.ips.clone(),
        created_at: time::from_wire_opt(sandbox.created_at.as_ref()),
        host_network: sandbox.host_network,
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

fn container(container: &pleg::Container) -> status::Container {
    let phase = match container.phase() {
        pleg::ContainerPhase::Created => ContainerPhase::Created,
        pleg::ContainerPhase::Running => ContainerPhase::Running,
        pleg::ContainerPhase::Exited => ContainerPhase::Exited,
        pleg::ContainerPhase::Unspecified | pleg::ContainerPhase::Unknown => {
            ContainerPhase::Unknown
        }
    };
    status::Container {
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
            Actual::of_kernel(
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

/// A kind of probe; `None` for one that this build does not know.
pub(crate) fn probe_kind(kind: i32) -> Option<ProbeKind> {
    match prober::ProbeKind::try_from(kind) {
        Ok(prober::ProbeKind::Startup) => Some(ProbeKind::Startup),
        Ok(prober::ProbeKind::Liveness) => Some(ProbeKind::Liveness),
        Ok(prober::ProbeKind::Readiness) => Some(ProbeKind::Readiness),
        Ok(prober::ProbeKind::Unspecified) | Err(_) => None,
    }
}

pub(crate) fn verdict(
    container: &str,
    kind: ProbeKind,
    verdict: &prober::Verdict,
) -> status::Verdict {
    status::Verdict {
        container_id: container.into(),
        kind,
        success: verdict.outcome() == prober::Outcome::Success,
        since: time::from_wire_opt(verdict.since.as_ref()),
    }
}

/// The status that the cluster holds of a pod; `None` while that is not known.
pub(crate) fn reported(status: &[u8], uid: &str) -> Option<Arc<PodStatus>> {
    if status.is_empty() {
        return None;
    }
    let read = serde_json::from_slice(status);
    read.inspect_err(|error| {
        tracing::warn!(
            k8s.pod.uid = uid,
            "the cluster's status of a pod cannot be read: {error}"
        );
    })
    .ok()
    .map(Arc::new)
}

pub(crate) fn mirror(uid: &str, mirror: &podconfig::v1::Mirror) -> Mirror {
    let name = mirror.r#ref.clone().unwrap_or_default();
    Mirror {
        uid: uid.to_owned(),
        namespace: name.namespace,
        name: name.name,
        of: mirror.of.clone(),
        deleting: mirror.deleting,
        status: reported(&mirror.reported_status, uid),
    }
}

/// This node's object; `None` while there is none that could be read.
pub(crate) fn node(told: &podconfig::v1::WatchNodeResponse) -> Option<Node> {
    let Some(watch_node_response::State::Manifest(manifest)) = &told.state else {
        return None;
    };
    let node: Result<k8s_openapi::api::core::v1::Node, _> = serde_json::from_slice(manifest);
    let metadata = match node {
        Ok(node) => node.metadata,
        Err(error) => {
            tracing::warn!("the cluster's Node cannot be read: {error}");
            return None;
        }
    };
    Some(Node {
        name: metadata.name?,
        uid: metadata.uid?,
        deleting: metadata.deletion_timestamp.is_some(),
    })
}

/// The addresses that the cluster's Node tells, one of each family.
pub(crate) fn host_ips(told: &podconfig::v1::WatchNodeResponse) -> Vec<String> {
    let Some(watch_node_response::State::Manifest(manifest)) = &told.state else {
        return Vec::new();
    };
    let node = serde_json::from_slice::<k8s_openapi::api::core::v1::Node>(manifest).ok();
    let status = node.and_then(|node| node.status);
    status
        .as_ref()
        .map(polylet_model::node::host_ips)
        .unwrap_or_default()
}

/// What is told of a pod, on the wire. A status always has a JSON form; should
/// that ever fail, the reader sees an empty status rather than a wrong one.
pub(crate) fn told(told: &Told, cause: Cause) -> wire::PodStatus {
    let manifest = &told.manifest;
    wire::PodStatus {
        r#ref: Some(PodRef {
            uid: manifest.uid().to_string(),
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
        }),
        status: serde_json::to_vec(&told.status)
            .unwrap_or_else(|_| b"{}".to_vec())
            .into(),
        manifest: manifest.raw().clone(),
        cause: Some(cause),
        waiting_for: told.waiting_for.clone(),
        stale: told.stale.clone(),
    }
}
