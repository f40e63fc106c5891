//! The status of one pod out of its facts.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::status::{self, ContainerPhase, PodWorkerState, RuntimeSandbox, StatusInputs};
use polylet_model::{Manifest, PodUid};

use super::fact_store::FactStore;
use super::facts::{DesiredManifest, FactStream, ManifestSource, RuntimePodState, SyncProgress};
use super::normal_form;
use super::published::{PublishedStatus, Teardown};

/// Computes a pod's status; `last_manifest` is that of its published status, `previous` gives the
/// previous status. `None` while its manifest is unknown, or its streams have not synced.
pub(super) fn compute(
    facts: &FactStore,
    uid: &PodUid,
    last_manifest: Option<&Manifest>,
    previous: impl FnOnce(&SyncProgress) -> Option<PodStatus>,
) -> Option<PublishedStatus> {
    let (desired, progress) = (facts.desired(uid), facts.progress(uid));
    let synced = desired.map_or_else(
        || facts.has_synced(),
        |(source, _)| facts.has_synced_source(source),
    );
    if !synced {
        return None;
    }
    let manifest = desired
        .map(|(_, desired)| &desired.manifest)
        .or_else(|| progress.and_then(|progress| progress.last_manifest.as_ref()))
        .or(last_manifest)?;
    let (no_state, no_progress) = (RuntimePodState::default(), SyncProgress::default());
    let state = facts.runtime_state(uid);
    // The coordinator has not received the pod yet.
    let unknown = progress.is_none() && state.is_none_or(RuntimePodState::is_empty);
    let state = state.unwrap_or(&no_state);
    let progress = progress.unwrap_or(&no_progress);
    let probes = facts.probes(uid);
    let newest = state.sandboxes.first();
    let handler = newest.map_or("", |sandbox| &sandbox.runtime_handler);
    // The status shows the resources as allocated.
    let allocated = progress.allocated.as_ref();
    let allocated = allocated.map(|allocated| allocated.apply_to(manifest));
    let worker_state = worker_state(progress, state);
    // A runtime without events reports the end of a sandbox at the next relist, when the pod may be
    // gone already.
    let ended: Vec<RuntimeSandbox>;
    let sandboxes = if progress.reclaimed {
        ended = state.sandboxes.iter().map(not_ready).collect();
        &ended
    } else {
        &state.sandboxes
    };
    let previous = previous(progress);
    let status = status::compute(&StatusInputs {
        defer_terminal_phase: true,
        manifest: allocated.as_ref().unwrap_or(manifest),
        sandboxes,
        containers: &state.containers,
        probe_results: &probes,
        waiting: &progress.wait_reasons,
        devices: facts.devices(uid),
        resize_pending: progress.resize_pending.as_ref(),
        resize_in_progress: progress.resize_in_progress.as_ref(),
        worker_state,
        terminal: progress.terminal.as_ref(),
        acknowledged_at: progress.acknowledged_at,
        host_ips: facts.host_ips(),
        runtime_name: facts.runtime_name(),
        recursive_read_only: facts.has_recursive_read_only(handler),
        pod_level_resources: facts.pod_level_resources(),
        previous: previous.as_ref(),
    });
    Some(PublishedStatus {
        manifest: manifest.clone(),
        status: normal_form::normalized(status),
        waiting_for: progress.waiting_for.clone(),
        stale: stale_peers(facts, uid, desired, state),
        teardown: Teardown {
            undesired: desired.is_none(),
            stopped: worker_state == PodWorkerState::Terminated,
            reclaimed: progress.reclaimed,
        },
        unadmitted: progress.unadmitted || unknown,
    })
}

/// Names of the peers whose facts about this pod are only the last known.
fn stale_peers(
    facts: &FactStore,
    uid: &str,
    desired: Option<(ManifestSource, &DesiredManifest)>,
    state: &RuntimePodState,
) -> Vec<String> {
    let concerns = |stream: &FactStream| match (stream, desired) {
        (FactStream::Pods(source), Some((own, _))) => *source == own,
        (FactStream::PodDevices, _) => facts.devices(uid).is_some_and(|all| !all.is_empty()),
        _ => true,
    };
    let streams = facts.stale().iter().filter(|stream| concerns(stream));
    let peers = streams.map(|stream| stream.peer());
    // pod-config serves its last known copy of an unavailable source.
    let source = desired
        .filter(|(_, desired)| desired.stale)
        .map(|(source, _)| match source {
            ManifestSource::Api => "API server",
            ManifestSource::File | ManifestSource::Http => "pod-config",
        });
    let names: BTreeSet<&str> = peers.chain(source).collect();
    let mut stale: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if !state.inspect_error.is_empty() {
        stale.push(format!("container runtime: {}", state.inspect_error));
    }
    stale
}

/// The state of the pod's worker, deferred while containers still run. Streams are not ordered among each other:
/// the pod may be reported as terminated before the ends of its containers, which are then not yet
/// known rather than lost.
fn worker_state(progress: &SyncProgress, state: &RuntimePodState) -> PodWorkerState {
    // A container that was never started has nothing to end.
    let ended = |phase| matches!(phase, ContainerPhase::Exited | ContainerPhase::Created);
    if state.containers.iter().all(|c| ended(c.phase)) {
        progress.worker_state
    } else {
        progress.worker_state.min(PodWorkerState::Terminating)
    }
}

fn not_ready(sandbox: &RuntimeSandbox) -> RuntimeSandbox {
    RuntimeSandbox {
        ready: false,
        ..sandbox.clone()
    }
}
