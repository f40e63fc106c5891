//! Updates of the peers' streams.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_model::{Manifest, PodUid, declared_features};
use polylet_watch::{PressureItemKey, ProbeItemKey, Update};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::eviction::v1::pressure::Fact;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::Pod;
use polylet_wire::prober::v1::{ProbeKind, ProbeStatus};
use polylet_wire::time::from_wire_opt;
use polylet_wire::volume::v1::PodVolumes;

use super::pod_worker::RefreshScope;
use super::stream_sync::SyncedStream;
use super::{State, name_conflicts};
use crate::convert;
use crate::core::apply_result;
use crate::core::pod_spec::PodSpecView;
use crate::core::runtime_state::PodRuntimeState;
use crate::core::step::StepKey;
use crate::core::view::PodSyncStatus;

impl State {
    /// Handles a desired pod of a source.
    pub(crate) fn handle_pod_config(
        &mut self,
        source: i32,
        update: Update<PodUid, Pod>,
        allowed_sysctls: &[String],
        now: Timestamp,
    ) {
        match update {
            Update::Upsert(uid, pod) => {
                self.streams.set_cached(&uid, pod.stale_since.is_some());
                self.set_desired(source, &uid, pod, allowed_sysctls, now);
            }
            Update::Remove(uid) => {
                self.streams.set_cached(&uid, false);
                let Some(worker) = self.workers.remove_source(&uid, source) else {
                    return;
                };
                let is_known = std::mem::replace(&mut worker.pod.removal_requested, true);
                let span = tracing::info_span!(parent: None, "sync.removed", k8s.pod.uid = uid.as_str(),
                    k8s.pod.name = worker.reference.name, k8s.namespace.name = worker.reference.namespace);
                match worker.cause.as_ref().filter(|_| is_known) {
                    // Deleted at the API server before: that trace goes on.
                    Some(deletion) => cause::follow(&span, Some(deletion)),
                    None => {
                        cause::start_trace(&span);
                        cause::name_root(&span, cause::root::POD_DELETE);
                    }
                }
                worker.cause = Some(cause::from_span(&span));
                // Of the statuses that follow, too: without anything to stop, no other step is.
                worker.last_step.clone_from(&worker.cause);
                self.workers.queue.push(&uid);
            }
            Update::Synced => {
                self.streams.mark_synced(SyncedStream::PodSource(source));
            }
            Update::Stale(reason) => {
                tracing::debug!(source, reason, "pod source lost; keeping its pods");
                self.streams.mark_stale(SyncedStream::PodSource(source));
            }
        }
    }

    fn set_desired(
        &mut self,
        source: i32,
        uid: &PodUid,
        pod: Pod,
        allowed_sysctls: &[String],
        now: Timestamp,
    ) {
        let termination = convert::reported_termination(&pod, now);
        let start_time = pod.start_time;
        let removed_at = from_wire_opt(pod.removed_at.as_ref());
        let reference = pod.r#ref.unwrap_or_else(|| PodRef {
            uid: uid.to_string(),
            ..PodRef::default()
        });
        let unchanged = self.workers.unchanged_manifest(uid, &pod.manifest).cloned();
        let is_unchanged = unchanged.is_some();
        let parsed = match unchanged {
            Some(manifest) => Ok(manifest),
            None => Manifest::from_bytes_with_digest(pod.manifest, &pod.digest),
        };
        let manifest = match parsed {
            Ok(manifest) => manifest,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::error!(
                    pod = %convert::pod_name(&reference),
                    pod_uid = uid.as_str(),
                    error,
                    "invalid manifest from pod-config; keeping the pod as it is"
                );
                // Still served by its source, so not an orphan.
                self.workers.insert_served(uid, &reference, source);
                return;
            }
        };
        if manifest.is_mirror() {
            return;
        }
        let from_kubelet = self.workers.take_kubelet_allocation(uid).map(|allocated| {
            let before = allocated.apply_to(&manifest);
            let before = PodSpecView::from_manifest(&before, allowed_sysctls);
            (allocated, before.request)
        });
        // Kept by the cluster while this node lost its state, or had another agent.
        let started_at = from_wire_opt(start_time.as_ref()).or(manifest.seen_at());
        let worker = self.workers.insert_served(uid, &reference, source);
        let was_removed = worker.pod.removal_requested;
        if worker.set_removed_at(removed_at) && !was_removed {
            tracing::info!(
                pod = %convert::pod_name(&reference),
                pod_uid = uid.as_str(),
                "pod was removed and added again; starting it over"
            );
            worker.cause.clone_from(&pod.cause);
        }
        if !is_unchanged {
            let spec = PodSpecView::from_manifest(&manifest, allowed_sysctls);
            let declared = self.node.state.resources.declared_features.as_ref();
            if let Some((before, declared)) = worker.manifest.as_ref().zip(declared) {
                let required =
                    declared_features::required_to_update(before.spec(), manifest.spec());
                worker.missing_features = declared_features::missing(&required, declared);
            }
            worker.set_manifest(manifest, spec, pod.cause);
        }
        let checkpoint = &mut worker.pod.checkpoint;
        if checkpoint.acknowledged_at.is_none() {
            checkpoint.acknowledged_at = Some(started_at.unwrap_or(now));
            if let Some((allocated, request)) = from_kubelet {
                checkpoint.allocated = Some(Arc::new(allocated));
                checkpoint.request = Some(request);
            }
        }
        if checkpoint.termination.is_none() && termination.is_some() {
            // The cluster has it as ended: it must not run again on a node that lost its state.
            checkpoint.termination = termination;
            worker.pod.checkpointed = false;
        }
        self.workers.update_failed_pulls(uid);
    }

    /// Handles the state of a pod in the runtime; returns the UID of a pod to refresh, because the
    /// state may be older than what is known.
    #[must_use]
    pub(crate) fn handle_pod_state(
        &mut self,
        update: Update<PodUid, PodState>,
        now: Timestamp,
    ) -> Option<(PodUid, RefreshScope)> {
        match update {
            Update::Upsert(uid, state) => {
                let observed = convert::runtime_pod(&state);
                let reference = state.r#ref.unwrap_or_else(|| PodRef {
                    uid: uid.to_string(),
                    ..PodRef::default()
                });
                let worker = self.workers.get_or_insert(&uid, &reference);
                if worker.is_at_rest() && state.cause.is_some() && !worker.pod.removal_requested {
                    worker.cause = state.cause;
                }
                worker.pod.in_stream = true;
                let is_unserved = worker.is_unserved();
                let needs_refresh = worker.on_observed(observed, now);
                if is_unserved {
                    name_conflicts::requeue_same_name(&mut self.workers, &uid);
                }
                needs_refresh.then_some((uid, RefreshScope::Everything))
            }
            // A removal has no time, and may be older than the response to a refresh.
            Update::Remove(uid) => {
                let worker = self.workers.get_mut(&uid)?;
                worker.pod.in_stream = false;
                let scope = scope_after_removal(&worker.pod);
                self.workers.queue.push(&uid);
                let scope = scope?;
                Some((uid, scope))
            }
            Update::Synced => {
                if self.streams.mark_synced(SyncedStream::PodStates) {
                    self.node.state.pleg_synced = true;
                    self.workers.on_pod_states_synced();
                }
                None
            }
            Update::Stale(reason) => {
                tracing::warn!(
                    reason,
                    "pod states of the runtime lost; no new steps until pleg is back"
                );
                self.streams.mark_stale(SyncedStream::PodStates);
                self.node.state.pleg_synced = false;
                self.workers.requeue_all();
                None
            }
        }
    }

    /// Handles the state of a pod's volumes.
    pub(crate) fn handle_volumes(&mut self, update: Update<PodUid, PodVolumes>, now: Timestamp) {
        match update {
            Update::Upsert(uid, state) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    let volumes = convert::observed_volumes(&state);
                    apply_result::on_volumes(&mut worker.pod, state.sequence, volumes);
                    self.workers.queue.push(&uid);
                }
                self.workers.reports.volumes.insert(uid, state);
            }
            Update::Remove(uid) => {
                self.workers.reports.volumes.remove(&uid);
                self.orphans.on_pod_gone(&uid, now);
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.pod.volumes.reported = None;
                    self.workers.queue.push(&uid);
                }
            }
            Update::Synced => {
                if self.streams.mark_synced(SyncedStream::Volumes) {
                    // It may be a new instance of volume-manager without any declaration.
                    self.redeclare_volumes();
                    self.node.state.volumes_synced = true;
                }
            }
            Update::Stale(reason) => {
                tracing::warn!(
                    reason,
                    "volume states lost; pods with volumes wait for volume-manager"
                );
                self.streams.mark_stale(SyncedStream::Volumes);
                self.node.state.volumes_synced = false;
            }
        }
    }

    /// Handles the status of a probe.
    pub(crate) fn handle_probe_status(&mut self, update: Update<ProbeItemKey, ProbeStatus>) {
        match update {
            Update::Upsert((uid, container, kind), status) => {
                if let Some(worker) = self.workers.get_mut(&uid)
                    && let Some(result) = convert::probe_update(kind, &status)
                {
                    if result.is_failure() && worker.was_in_sync && status.cause.is_some() {
                        worker.cause.clone_from(&status.cause);
                    }
                    result.apply_to(&mut worker.pod, &container);
                    self.workers.queue.push(&uid);
                }
                let key = (uid, container, kind);
                self.workers.reports.probes.insert(key, status);
            }
            Update::Remove(key) => {
                self.workers.reports.probes.remove(&key);
                let (uid, container, kind) = key;
                let Some(worker) = self.workers.get_mut(&uid) else {
                    return;
                };
                let pod = &mut worker.pod;
                let startup = ProbeKind::try_from(kind) == Ok(ProbeKind::Startup);
                if startup {
                    pod.startup_succeeded.remove(&container);
                }
                let failure = pod.probe_failures.get(&container);
                if failure.is_some_and(|failure| failure.startup == startup) {
                    pod.probe_failures.remove(&container);
                }
            }
            Update::Synced | Update::Stale(_) => {}
        }
    }

    /// Handles a node pressure condition or an eviction.
    pub(crate) fn handle_pressure(
        &mut self,
        update: Update<PressureItemKey, Pressure>,
        now: Timestamp,
    ) {
        match update {
            Update::Upsert(_, Pressure { fact }) => match fact {
                Some(Fact::Condition(condition)) => {
                    self.workers.queue.requeue_waiting_for_capacity();
                    if self.node.handle_condition(&condition) {
                        tracing::info!(
                            "removing dead containers of terminated pods: disk space is needed"
                        );
                        self.workers.requeue_all();
                    }
                }
                Some(Fact::Eviction(eviction)) => {
                    let termination = convert::eviction(&eviction, now);
                    let uid = PodUid::from(eviction.pod.map(|pod| pod.uid).unwrap_or_default());
                    if let Some(worker) = self.workers.get_mut(&uid) {
                        worker.pod.eviction = Some(termination.clone());
                        worker.cause = eviction.cause.or(worker.cause.take());
                        self.workers.queue.push(&uid);
                    }
                    self.workers.reports.evictions.insert(uid, termination);
                }
                None => {}
            },
            Update::Remove(PressureItemKey::Pod(uid)) => {
                self.workers.reports.evictions.remove(&uid);
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.pod.eviction = None;
                }
            }
            _ => {}
        }
    }
}

/// What pleg has to inspect after it has reported that the runtime has nothing of a pod.
fn scope_after_removal(pod: &PodSyncStatus) -> Option<RefreshScope> {
    // A refresh follows the removal.
    let mut in_flight = pod.in_flight.keys();
    if in_flight.any(|key| matches!(key, StepKey::RemoveSandbox(_))) {
        return None;
    }
    let observed = pod.observed.as_deref();
    match observed.is_some_and(PodRuntimeState::is_empty) {
        true if pod.pending_effects.is_empty() => None,
        true => Some(RefreshScope::PendingEffects),
        false => Some(RefreshScope::Everything),
    }
}
