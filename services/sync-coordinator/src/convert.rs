//! Between the wire and the domain.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceRequirements;
use polylet_model::constants::{annotation, phase, reason};
use polylet_model::hook::Hook;
use polylet_model::quantity::{self, Amount};
use polylet_model::{Amounts, node};
use polylet_wire::time::{from_wire_opt, to_wire};
use polylet_wire::{common, eviction, pleg, podconfig, prober, sync, volume};

use crate::core::observed::{Observed, Phase, SeenContainer, SeenSandbox};
use crate::core::plan::{self, Plan};
use crate::core::resize::{Progress, Verdict};
use crate::core::room::NodeObject;
use crate::core::view::{Pod, SeenVolume, Terminal, Unwell};

/// What the runtime holds of a pod.
pub(crate) fn observed(state: &pleg::v1::PodState) -> Observed {
    Observed {
        sandboxes: state.sandboxes.iter().map(sandbox).collect(),
        containers: state.containers.iter().map(container).collect(),
        at: from_wire_opt(state.observed_at.as_ref()),
        doubt: state.inspect_error.clone(),
    }
}

fn sandbox(seen: &pleg::v1::Sandbox) -> SeenSandbox {
    SeenSandbox {
        id: seen.id.clone(),
        attempt: seen.attempt,
        ready: seen.ready,
        ips: seen.ips.clone(),
        host_network: seen.host_network,
        created_at: from_wire_opt(seen.created_at.as_ref()),
    }
}

fn container(seen: &pleg::v1::Container) -> SeenContainer {
    use pleg::v1::ContainerPhase as Wire;
    let note = |key: &str| seen.annotations.get(key);
    SeenContainer {
        id: seen.id.clone(),
        sandbox_id: seen.sandbox_id.clone(),
        name: seen.name.clone(),
        attempt: seen.attempt,
        phase: match seen.phase() {
            Wire::Created => Phase::Created,
            Wire::Running => Phase::Running,
            Wire::Exited => Phase::Exited,
            Wire::Unknown | Wire::Unspecified => Phase::Unknown,
        },
        exit_code: seen.exit_code,
        reason: seen.reason.clone(),
        // Runtimes undo a start whose caller vanished; that is no exit of the container's own.
        aborted: seen.reason == "StartError" && seen.message.contains("context canceled"),
        hash: note(annotation::CONTAINER_HASH)
            .cloned()
            .unwrap_or_default(),
        back_off_step: note(annotation::BACK_OFF_STEP)
            .and_then(|v| v.parse().ok())
            .unwrap_or(seen.attempt),
        made_with: note(annotation::MADE_WITH).and_then(|text| serde_json::from_str(text).ok()),
        grace: grace(&seen.annotations),
        pre_stop: pre_stop(&seen.annotations).map(Into::into),
        created_at: from_wire_opt(seen.created_at.as_ref()),
        started_at: from_wire_opt(seen.started_at.as_ref()),
        finished_at: from_wire_opt(seen.finished_at.as_ref()),
    }
}

fn grace(annotations: &BTreeMap<String, String>) -> Option<u32> {
    let read = |key: &str| annotations.get(key).and_then(|v| v.parse().ok());
    read(annotation::POD_DELETION_GRACE_PERIOD)
        .or_else(|| read(annotation::POD_TERMINATION_GRACE_PERIOD))
}

fn pre_stop(annotations: &BTreeMap<String, String>) -> Option<Hook> {
    let handler = annotations.get(annotation::PRE_STOP_HANDLER)?;
    let ports = annotations.get(annotation::PORTS).map(String::as_str);
    Hook::restored(handler, ports)
}

/// Where a pod's volumes stand.
pub(crate) fn volumes(state: &volume::v1::PodVolumes) -> Vec<SeenVolume> {
    use volume::v1::VolumePhase as Wire;
    let one = |v: &volume::v1::Volume| SeenVolume {
        name: v.name.clone(),
        mounted: v.phase() == Wire::Mounted,
        coming: v.phase() == Wire::Waiting && v.coming,
        gone: v.phase() == Wire::Gone,
        host_path: v.host_path.clone(),
        message: v.message.clone(),
        refusal: v.refusal.clone(),
        group: v.group,
    };
    state.volumes.iter().map(one).collect()
}

/// Takes in whether a container is well; true when it is not, `None` when the
/// verdict changes nothing.
pub(crate) fn verdict(
    pod: &mut Pod,
    container: &str,
    kind: i32,
    verdict: &prober::v1::Verdict,
) -> Option<bool> {
    use prober::v1::{Outcome, ProbeKind};
    match (ProbeKind::try_from(kind), verdict.outcome()) {
        (Ok(ProbeKind::Startup), Outcome::Success) => {
            pod.startup_ok.insert(container.to_owned());
            Some(false)
        }
        (Ok(kind @ (ProbeKind::Startup | ProbeKind::Liveness)), Outcome::Failure) => {
            let unwell = Unwell {
                startup: kind == ProbeKind::Startup,
                message: verdict.message.clone(),
            };
            pod.unwell.insert(container.to_owned(), unwell);
            Some(true)
        }
        _ => None,
    }
}

/// An order to evict a pod, as the decision that follows from it.
pub(crate) fn order(order: &eviction::v1::Order, now: Timestamp) -> Terminal {
    Terminal {
        reason: reason::EVICTED.to_owned(),
        message: order.message.clone(),
        phase: phase::FAILED.to_owned(),
        disruption_target: order.disruption_target,
        decided_at: from_wire_opt(order.decided_at.as_ref()).unwrap_or(now),
        grace: Some(order.grace_seconds),
    }
}

/// The end of a pod that the cluster holds as ended.
pub(crate) fn ended(pod: &podconfig::v1::Pod, now: Timestamp) -> Option<Terminal> {
    use podconfig::v1::TerminalPhase as Wire;
    let phase = match pod.terminal_phase() {
        Wire::Unspecified => return None,
        Wire::Succeeded => phase::SUCCEEDED,
        Wire::Failed => phase::FAILED,
    };
    Some(Terminal {
        reason: String::new(),
        message: String::new(),
        phase: phase.to_owned(),
        disruption_target: false,
        decided_at: now,
        grace: None,
    })
}

/// The node's object, as far as admission goes, and the addresses that it tells.
pub(crate) fn node(
    said: &podconfig::v1::WatchNodeResponse,
) -> Result<(NodeObject, Vec<String>), serde_json::Error> {
    use podconfig::v1::watch_node_response::State;
    let Some(State::Manifest(json)) = &said.state else {
        return Ok((NodeObject::None, Vec::new()));
    };
    let node: k8s_openapi::api::core::v1::Node = serde_json::from_slice(json)?;
    let host_ips = node.status.as_ref().map(node::host_ips).unwrap_or_default();
    let allocatable = node.status.and_then(|status| status.allocatable);
    let number = |(name, amount): (&String, &Amount)| (name.clone(), node::number(name, *amount));
    let known = NodeObject::Known {
        labels: node.metadata.labels.unwrap_or_default(),
        taints: node.spec.and_then(|spec| spec.taints).unwrap_or_default(),
        allocatable: quantity::read(allocatable.as_ref())
            .iter()
            .map(number)
            .collect(),
    };
    Ok((known, host_ips))
}

/// What is told of a pod beside its state and plan.
pub(crate) struct Told<'a> {
    /// Names the pod.
    pub(crate) pod: &'a common::v1::PodRef,
    /// The manifest's digest once everything in it is as it should be.
    pub(crate) digest_synced: &'a str,
    /// The manifest of a pod that is no longer served by its source.
    pub(crate) last_manifest: Option<&'a Bytes>,
    /// The span of the last step.
    pub(crate) cause: Option<&'a common::v1::Cause>,
}

/// How far a pod has come, for those who watch.
pub(crate) fn pod_sync(told: &Told<'_>, pod: &Pod, plan: &Plan) -> sync::v1::PodSync {
    sync::v1::PodSync {
        r#ref: Some(told.pod.clone()),
        phase: sync_phase(plan.phase).into(),
        digest_synced: told.digest_synced.to_owned(),
        containers: plan
            .notes
            .iter()
            .map(|note| container_note(pod, note))
            .collect(),
        terminal: pod.journal.terminal.as_ref().map(terminal),
        cause: told.cause.cloned(),
        waiting_for: plan.waiting.iter().map(waiting).collect(),
        acknowledged_at: pod.journal.acknowledged_at.map(to_wire),
        last_manifest: told.last_manifest.cloned().unwrap_or_default(),
        needs_sandbox: plan.needs_sandbox,
        resize_pending: resize_pending(pod, plan),
        allocated: allocated(pod, plan).into(),
        resize_progress: plan
            .resizing
            .as_ref()
            .map(|progress| resizing(pod, progress)),
        unadmitted: plan.unadmitted,
    }
}

fn resize_pending(pod: &Pod, plan: &Plan) -> Option<sync::v1::ResizePending> {
    let Verdict::Pending { reason, message } = &plan.resize else {
        return None;
    };
    Some(sync::v1::ResizePending {
        reason: (*reason).to_owned(),
        message: message.clone(),
        since: pod.resize_since.map(to_wire),
    })
}

fn resizing(pod: &Pod, progress: &Progress) -> sync::v1::ResizeProgress {
    let requirements = |amounts: &Amounts| {
        let mut had = ResourceRequirements::default();
        amounts.put_into(&mut had);
        had
    };
    let actual = progress.actual.iter();
    let actual: BTreeMap<&String, _> = actual.map(|(n, had)| (n, requirements(had))).collect();
    sync::v1::ResizeProgress {
        error: progress.error.clone(),
        since: pod.resizing_since.map(to_wire),
        generation: progress.generation,
        actual: serde_json::to_vec(&actual).unwrap_or_default().into(),
    }
}

/// What the pod was given; empty while that is what its manifest asks for.
fn allocated(pod: &Pod, plan: &Plan) -> Vec<u8> {
    let given = pod.journal.allocated.as_deref();
    let given = given.filter(|_| plan.resize != Verdict::Settled);
    given
        .and_then(|given| serde_json::to_vec(given).ok())
        .unwrap_or_default()
}

fn sync_phase(of: plan::Phase) -> sync::v1::SyncPhase {
    use sync::v1::SyncPhase as Wire;
    match of {
        plan::Phase::Unjudged => Wire::Unspecified,
        plan::Phase::Syncing => Wire::Syncing,
        plan::Phase::Terminating => Wire::Terminating,
        plan::Phase::Terminated => Wire::Terminated,
        plan::Phase::Reclaimed => Wire::Reclaimed,
    }
}

fn container_note(pod: &Pod, note: &plan::Note) -> sync::v1::ContainerNote {
    let newest = pod
        .observed
        .as_ref()
        .and_then(|o| o.newest(&note.container));
    sync::v1::ContainerNote {
        name: note.container.clone(),
        waiting_reason: note.reason.clone(),
        message: note.message.clone(),
        restarts: newest
            .map(|c| c.attempt)
            .or_else(|| Some(pod.lifecycle.resets.get(&note.container)?.attempt))
            .unwrap_or(0),
        retry_at: note.retry_at.map(to_wire),
    }
}

fn terminal(of: &Terminal) -> sync::v1::Terminal {
    sync::v1::Terminal {
        reason: of.reason.clone(),
        message: of.message.clone(),
        decided_at: Some(to_wire(of.decided_at)),
        phase: of.phase.clone(),
        disruption_target: of.disruption_target,
    }
}

fn waiting(of: &plan::Waiting) -> sync::v1::WaitingFor {
    sync::v1::WaitingFor {
        what: of.what.clone(),
        since: of.since.map(to_wire),
        error: of.error.clone(),
    }
}
