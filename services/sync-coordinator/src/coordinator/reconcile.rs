//! Reconciliation: plans for each queued pod, and starts the steps of the plan.

use std::collections::BTreeSet;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_model::constants::reason;
use polylet_model::names;
use polylet_wire::podconfig::v1::PodSource;

use super::{Coordinator, counts, dispatch};
use crate::convert;
use crate::core::admission;
use crate::core::plan::{Plan, SyncPhase};
use crate::core::pod_worker::plan;
use crate::core::runtime_state::ContainerState;
use crate::core::step::{Step, StepKey, StepOutcome};
use crate::core::view::View;
use crate::core::{apply_result, events};
use crate::runtime::{failure, metrics, trace};
use crate::state::pod_worker::RefreshScope;
use crate::state::pod_workers::PodWorkers;
use crate::state::publication::PublishDecision;
use crate::state::{name_conflicts, publication, resource_usage};

impl Coordinator {
    /// Reconciles all queued pods.
    pub fn reconcile(&mut self, now: Timestamp) {
        let state = &mut self.state;
        if state.node.state.all_synced {
            state.orphans.adopt(&mut state.workers);
        }
        self.reconcile_queued(now);
        self.complete_declarations();
        if self.finish_initial_sync(now) {
            // What pods hold that are gone may be what others wait for.
            self.reconcile_queued(now);
        }
        self.scan_for_orphans(now);
    }

    fn reconcile_queued(&mut self, now: Timestamp) {
        while let Some(uid) = self.state.workers.next_to_reconcile() {
            self.reconcile_pod(&uid, now);
        }
    }

    /// Plans for one pod, and starts the steps of the plan.
    fn reconcile_pod(&mut self, uid: &PodUid, now: Timestamp) {
        let state = &mut self.state;
        let blocked_by = name_conflicts::blocked_by(&state.workers, uid);
        let Some(worker) = state.workers.get_mut(uid) else {
            return;
        };
        worker.pod.blocked_by = blocked_by;
        let observed = worker.pod.observed.as_deref();
        if let Some(running) = state.logs.update(&worker.reference, observed) {
            self.effects.set_running_containers(running);
        }
        let Some(next) = self.plan_with_permit(uid, now) else {
            return;
        };
        let newly_cleaned_up = self.apply_plan(uid, &next, now);
        let mut steps = next.steps.clone();
        if !self.save_lifecycle(uid) {
            steps.retain(|step| !self.withhold(uid, step, now));
        }
        let forget = next.forget && self.is_at_rest(uid);
        let needs_refresh = next.needs_refresh;
        self.publish(uid, next, now);
        self.account(uid, now);
        for step in steps {
            dispatch::start_step(&*self.effects, &mut self.state, uid, step);
        }
        counts::count_pod(&mut self.state, uid, self.started_at, now);
        let state = &mut self.state;
        let refreshing = |uid| {
            let worker = state.workers.get(uid);
            worker.is_none_or(|worker| worker.refresh.in_flight)
        };
        if needs_refresh && !self.draining && !refreshing(uid) {
            dispatch::refresh_pod(&*self.effects, state, uid, RefreshScope::Everything);
        }
        state.update_permit(uid, now);
        if newly_cleaned_up {
            state.workers.queue.push(uid);
            name_conflicts::requeue_same_name(&mut state.workers, uid);
        }
        if forget {
            self.forget_pod(uid, now);
        }
    }

    /// The plan of a pod, after taking a start permit if the plan needs one.
    fn plan_with_permit(&mut self, uid: &str, now: Timestamp) -> Option<Plan> {
        let state = &mut self.state;
        let worker = state.workers.get_mut(uid)?;
        let node = &state.node.state;
        let mut next = plan(&View {
            pod: &worker.pod,
            node,
            now,
        });
        if let Some(class) = next.needs_start_permit
            && !worker.pod.has_start_permit
            && !self.draining
        {
            if state.starts.try_acquire(uid, class, now) {
                worker.pod.has_start_permit = true;
                next = plan(&View {
                    pod: &worker.pod,
                    node,
                    now,
                });
            } else if worker.permit_wait.is_none() {
                let span = trace::permit_wait_span(&worker.reference, worker.cause.as_ref());
                worker.permit_wait = Some(span);
            }
        }
        if worker.pod.has_start_permit || next.needs_start_permit.is_none() {
            worker.permit_wait = None;
        }
        if self.draining {
            next.steps.clear();
            next.stops.clear();
            next.pending_restarts.clear();
        }
        Some(next)
    }

    /// Applies a plan to the pod's state: cancels needless steps, and records events. True if the pod
    /// is newly cleaned up.
    fn apply_plan(&mut self, uid: &str, next: &Plan, now: Timestamp) -> bool {
        let state = &mut self.state;
        let Some(worker) = state.workers.get_mut(uid) else {
            return false;
        };
        if next.phase != SyncPhase::Syncing {
            worker.cancel_steps(only_starts);
            worker.object_watches.clear();
        }
        worker.cancel_steps(|key| next.abandoned.contains(key));
        let cleaned_up = next.phase == SyncPhase::CleanedUp && worker.pod.cleaned_up_at.is_none();
        let view = View {
            pod: &worker.pod,
            node: &state.node.state,
            now,
        };
        for event in events::events(&view, &worker.plan, next, self.started_at) {
            self.effects.record_event(&worker.reference, event);
        }
        if let Some(missing) = worker.missing_features.take() {
            let event = events::missing_features(&missing);
            self.effects.record_event(&worker.reference, event);
        }
        apply_result::on_started(&mut worker.pod, next, now);
        cleaned_up
    }

    /// Saves the pod's stops and hooks in progress, if they have changed. False if that failed: it is
    /// tried again with the next reconciliation.
    fn save_lifecycle(&mut self, uid: &PodUid) -> bool {
        let Some(worker) = self.state.workers.get_mut(uid) else {
            return true;
        };
        if worker.saved_lifecycle == worker.pod.lifecycle {
            return true;
        }
        match self.effects.save_lifecycle(uid, &worker.pod.lifecycle) {
            Ok(()) => {
                worker.saved_lifecycle.clone_from(&worker.pod.lifecycle);
                true
            }
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::warn!(
                    pod_uid = uid.as_str(),
                    error,
                    "failed to save stops and hooks in progress"
                );
                false
            }
        }
    }

    /// Fails a step whose intent could not be saved: a later process instance would miss the hook or
    /// the restart. Stops are not withheld: an unknown grace period merely starts over.
    fn withhold(&mut self, uid: &PodUid, step: &Step, now: Timestamp) -> bool {
        let Some(worker) = self.state.workers.get_mut(uid) else {
            return false;
        };
        let depends = match step {
            Step::StartContainer { id, .. } => worker.pod.lifecycle.post_starts.contains_key(id),
            Step::RemoveForRestart { .. } => true,
            _ => false,
        };
        if depends {
            let reason = reason::RUN_CONTAINER_ERROR;
            let failed = failure(reason, "failed to save the state of hooks and restarts");
            let outcome = StepOutcome::Failed(failed);
            apply_result::on_finished(&mut worker.pod, &step.key(), outcome, now);
            self.state.workers.queue.push(uid);
        }
        depends
    }

    fn is_at_rest(&self, uid: &str) -> bool {
        let worker = self.state.workers.get(uid);
        worker.is_some_and(|worker| worker.pod.in_flight.is_empty())
    }

    /// Stores a plan, publishes the pod's status, if that is due, and sets the time of the next
    /// reconciliation.
    fn publish(&mut self, uid: &PodUid, next: Plan, now: Timestamp) {
        let workers = &mut self.state.workers;
        let Some(worker) = workers.get_mut(uid) else {
            return;
        };
        let mut wake_at = next.wake_at;
        worker.set_plan(next);
        if let Some(mut status) = worker.pod_sync() {
            let pulls = self.effects.image_pull_time(uid);
            status.image_pull_time = pulls.try_into().ok().filter(|_| !pulls.is_zero());
            let published = self.store.get(&uid.to_owned());
            // After the clock was set back, from now on.
            let since = worker.unpublished_since.take();
            let since = since.map_or(now, |since| since.min(now));
            match publication::decide(published, &mut status, since, now) {
                PublishDecision::Now => drop(self.store.upsert(uid.to_owned(), status)),
                PublishDecision::At(at) => {
                    worker.unpublished_since = Some(since);
                    wake_at = Some(wake_at.map_or(at, |earlier| earlier.min(at)));
                }
                PublishDecision::Known => {}
            }
        }
        workers.queue.set_due(uid, wake_at);
    }

    /// Updates what a pod holds of the node, and preempts pods for it.
    fn account(&mut self, uid: &PodUid, now: Timestamp) {
        let state = &mut self.state;
        let Some(worker) = state.workers.get(uid) else {
            return;
        };
        let waits = worker.plan.waits_for_capacity;
        let victims = worker.plan.victims.clone();
        let allocation = resource_usage::allocation(worker, state.node.state.all_synced);
        state.set_allocation(uid, allocation);
        state.workers.queue.set_waiting_for_capacity(uid, waits);
        for victim in &victims {
            let Some(worker) = state.workers.get_mut(victim) else {
                continue;
            };
            tracing::warn!(
                pod = %convert::pod_name(&worker.reference),
                pod_uid = victim.as_str(),
                preemptor_uid = uid.as_str(),
                "pod is preempted by a critical pod"
            );
            worker.pod.eviction.get_or_insert(admission::preempted(now));
            let victim = worker.pod.uid.clone();
            state.workers.queue.push(&victim);
        }
    }

    /// Forgets a pod of which nothing is left. If its source still serves it, it starts over.
    fn forget_pod(&mut self, uid: &PodUid, now: Timestamp) {
        let state = &mut self.state;
        state.starts.leave_queue(uid);
        state.starts.release(uid);
        let Some(worker) = state.workers.remove(uid) else {
            return;
        };
        if let Some(running) = state.logs.update(&worker.reference, None) {
            self.effects.set_running_containers(running);
        }
        if !worker.is_orphan {
            state.orphans.on_pod_gone(uid, now);
        }
        self.effects.forget_pod(uid);
        state.counts.remove(uid);
        state.set_allocation(uid, None);
        self.store.remove(uid);
        if worker.pod.has_source
            && let (Some(manifest), Some(spec)) = (worker.manifest, worker.pod.spec.clone())
        {
            metrics::pods::count_restart(worker.source != i32::from(PodSource::Api));
            let workers = &mut state.workers;
            let new = workers.insert_served(uid, &worker.reference, worker.source);
            new.pod.checkpoint.acknowledged_at = Some(now);
            new.set_removed_at(worker.removed_at);
            new.set_manifest(manifest, (*spec).clone(), worker.cause);
            new.pod.take_runtime_state(worker.pod);
        }
    }

    /// Completes the volume declarations once all pods are declared.
    fn complete_declarations(&mut self) {
        let state = &mut self.state;
        if self.draining {
            return;
        }
        if let Some(count) = state.volumes.start_completion(&state.workers, &state.node) {
            let epoch = state.volumes.client_epoch();
            self.effects.complete_desired(epoch, count);
        }
    }

    /// After the initial sync of all streams: forgets restored pods that neither a source nor the
    /// runtime knows, and serves the complete status. True if it did so now.
    fn finish_initial_sync(&mut self, now: Timestamp) -> bool {
        let state = &mut self.state;
        if self.store.has_synced() || !state.streams.all_synced() {
            return false;
        }
        for uid in state.workers.take_unknown() {
            self.effects.forget_pod(&uid);
            state.set_allocation(&uid, None);
        }
        let workers = &state.workers;
        self.effects.retain_pods(&|uid| workers.contains(uid));
        self.store.mark_synced();
        state.orphans.on_synced(now);
        true
    }

    /// Searches for orphans if it is time.
    fn scan_for_orphans(&mut self, now: Timestamp) {
        let state = &mut self.state;
        if state.may_scan(self.draining) && state.orphans.start(now) {
            self.effects.find_orphans();
            let in_use = log_links_in_use(&state.workers);
            self.effects.remove_dead_log_links(in_use);
        }
    }
}

/// Whether a step serves the start of a pod alone, and leaves nothing that its end would have to undo.
fn only_starts(key: &StepKey) -> bool {
    matches!(
        key,
        StepKey::PullImage(_) | StepKey::AllocateDevices | StepKey::PrepareDevices(_)
    )
}

/// Names of the log links of containers that have not exited.
fn log_links_in_use(workers: &PodWorkers) -> BTreeSet<String> {
    let mut links = BTreeSet::new();
    for worker in workers.iter() {
        let (pod, namespace) = (&worker.reference.name, &worker.reference.namespace);
        let observed = worker.pod.observed.iter();
        let containers = observed.flat_map(|observed| &observed.containers);
        let alive = containers.filter(|c| c.state != ContainerState::Exited);
        links.extend(alive.map(|container| {
            let id = container.id.clone().into();
            names::container_log_link(pod, namespace, &container.name, &id)
        }));
    }
    links
}
