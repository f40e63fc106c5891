//! State changes of a pod: steps that start and finish, and reports of other services.

mod backoff;
mod observations;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;

pub use self::observations::{
    ReportOutcome, on_absent, on_observed, on_refreshed, on_volumes, redeclare_volumes,
};
use self::observations::{apply_effect, delay_unconfirmed_stop};
use crate::core::plan::{Plan, ResizeDecision, SyncPhase};
use crate::core::runtime_state::PendingEffect;
use crate::core::step::{Step, StepFailure, StepKey, StepOutcome};
use crate::core::view::{InFlight, PodSyncStatus, PostStartState, ResolvedImage, StepBackoff};

/// Ends the back-off of a step whose cause of failure has changed.
pub fn retry_now(pod: &mut PodSyncStatus, key: &StepKey, now: Timestamp) {
    if let Some(failure) = pod.failures.get_mut(key) {
        failure.retry_at = now;
    }
}

/// Looks at once for an image that another pod has pulled. True if a container waits for it.
pub fn on_image_arrived(pod: &mut PodSyncStatus, image: &str) -> bool {
    let mut waits = false;
    for (key, failure) in &pod.failures {
        if let StepKey::PullImage(container) = key
            && failure.image == image
        {
            pod.image_searches.insert(container.clone(), Timestamp::MIN);
            waits = true;
        }
    }
    waits
}

/// The images that the pod's containers could not pull, and wait for.
pub fn failed_images(pod: &PodSyncStatus) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for (key, failure) in &pod.failures {
        if matches!(key, StepKey::PullImage(_)) && !failure.image.is_empty() {
            images.insert(failure.image.clone());
        }
    }
    images
}

/// Applies a plan whose steps are started.
pub fn on_started(pod: &mut PodSyncStatus, plan: &Plan, now: Timestamp) {
    for step in &plan.steps {
        on_step_started(pod, step, now);
    }
    let affinity_unmet = plan.affinity_retry_until.is_some();
    pod.affinity_unmet_since = affinity_unmet.then(|| pod.affinity_unmet_since.unwrap_or(now));
    pod.network_reported_at = plan.network_reported_at;
    let resize_pending = matches!(plan.resize, ResizeDecision::Pending { .. });
    pod.resize_pending_since = resize_pending.then(|| pod.resize_pending_since.unwrap_or(now));
    let resizing = plan.resize_progress.is_some();
    pod.resize_started_at = resizing.then(|| pod.resize_started_at.unwrap_or(now));
    for (id, stop) in &plan.stops {
        pod.lifecycle.stops.insert(id.clone(), *stop);
    }
    for (name, restart) in &plan.pending_restarts {
        let restarts = &mut pod.lifecycle.pending_restarts;
        restarts.insert(name.clone(), *restart);
    }
    if plan.phase == SyncPhase::Terminating && pod.spec.is_none() {
        // If a source serves the orphan again it starts over after its removal.
        pod.removal_requested = true;
    }
    if plan.phase == SyncPhase::CleanedUp && pod.cleaned_up_at.is_none() {
        pod.cleaned_up_at = Some(now);
    }
}

fn on_step_started(pod: &mut PodSyncStatus, step: &Step, now: Timestamp) {
    if let Step::StartContainer { container, id, .. } = step
        && has_post_start(pod, container)
    {
        // Recorded before the start, so that the hook is not lost if this process dies in between.
        let post_starts = &mut pod.lifecycle.post_starts;
        post_starts.insert(id.clone(), PostStartState::Due);
    }
    // The first checkpoint admits the pod with what it requests now.
    if matches!(step, Step::Checkpoint) && pod.checkpoint.termination.is_none() {
        let request = pod.spec.as_ref().map(|spec| Arc::clone(&spec.request));
        pod.checkpoint.request = pod.checkpoint.request.take().or(request);
        let allocation = pod.spec.as_ref().map(|spec| Arc::clone(&spec.allocation));
        pod.checkpoint.allocated = pod.checkpoint.allocated.take().or(allocation);
    }
    if let Step::FindImage { container } = step {
        pod.image_searches.insert(container.clone(), now);
    }
    let in_flight = InFlight {
        step: step.clone(),
        started_at: now,
    };
    pod.in_flight.insert(step.key(), in_flight);
}

fn has_post_start(pod: &PodSyncStatus, container: &str) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.container(container))
        .is_some_and(|spec| spec.post_start.is_some())
}

/// Whether volume-manager rejected a call because it has a newer incarnation of this client.
pub fn is_superseded(pod: &PodSyncStatus, outcome: &StepOutcome) -> bool {
    matches!(outcome, StepOutcome::Failed(failure) if failure.superseded)
        && !pod.volumes.in_flight_is_stale
}

/// Applies the result of a step.
pub fn on_finished(pod: &mut PodSyncStatus, key: &StepKey, outcome: StepOutcome, now: Timestamp) {
    let Some(InFlight { step, .. }) = pod.in_flight.remove(key) else {
        return;
    };
    if let Step::CreateContainer { container, .. } = &step {
        // Used, or to be prepared again.
        pod.sub_paths.remove(container);
        pod.prepared_devices.remove(container);
    }
    let declares = matches!(step, Step::ApplyVolumes | Step::ReleaseVolumes);
    let is_stale = declares && std::mem::take(&mut pod.volumes.in_flight_is_stale);
    match outcome {
        _ if is_stale => {}
        // A new client incarnation resolves it, not a later retry.
        StepOutcome::Failed(failure) if failure.superseded => {}
        StepOutcome::Failed(failure) => on_failed(pod, &step, failure, now),
        StepOutcome::Cancelled => {}
        succeeded => {
            pod.failures.remove(key);
            on_succeeded(pod, step, succeeded, now);
        }
    }
}

fn on_succeeded(pod: &mut PodSyncStatus, step: Step, outcome: StepOutcome, now: Timestamp) {
    match (step, outcome) {
        (Step::Checkpoint, _) => pod.checkpointed = true,
        (step @ Step::CheckpointTermination(_), _) => {
            pod.checkpoint = step.checkpoint_after(&pod.checkpoint);
            pod.checkpointed = true;
        }
        (step @ Step::CheckpointAllocation { .. }, _) => {
            pod.checkpoint = step.checkpoint_after(&pod.checkpoint);
            pod.checkpointed = true;
            pod.failures.remove(&StepKey::Resize);
            // Downward API volumes show the containers' resources.
            redeclare_volumes(pod);
        }
        (step @ Step::Resize { .. }, _) => {
            pod.checkpoint = step.checkpoint_after(&pod.checkpoint);
            // Saved by a step of its own: a termination may have been saved since the resize began.
            pod.checkpointed = false;
            pod.cgroup_ready = true;
        }
        (Step::CheckpointTerminated, _) => pod.checkpoint.terminated = true,
        (Step::EnsureCgroup, _) => pod.cgroup_ready = true,
        (Step::CreateSandbox { .. }, StepOutcome::SandboxCreated(sandbox)) => {
            apply_effect(pod, PendingEffect::SandboxCreated(sandbox));
        }
        (
            Step::PullImage { container } | Step::FindImage { container },
            StepOutcome::ImagePulled { image, image_ref },
        ) => {
            pod.image_searches.remove(&container);
            pod.failures.remove(&StepKey::PullImage(container.clone()));
            let image_ref = Some(image_ref);
            let resolved = ResolvedImage { image, image_ref };
            pod.images.insert(container, resolved);
        }
        (Step::AllocateDevices, StepOutcome::DevicesAllocated(admission)) => {
            pod.devices = Some(admission);
        }
        (Step::PrepareDevices { container }, StepOutcome::DevicesPrepared(prepared)) => {
            pod.prepared_devices.insert(container, Rc::new(prepared));
        }
        (Step::PrepareSubPaths { container, .. }, StepOutcome::SubPathsPrepared(prepared)) => {
            pod.sub_paths.insert(container, prepared);
        }
        (Step::CreateContainer { container, .. }, StepOutcome::ContainerCreated(created)) => {
            // Resolved again before the next start: the tag may have moved by then.
            pod.images.remove(&container);
            apply_effect(pod, PendingEffect::ContainerCreated(created));
        }
        (Step::StartContainer { id, .. }, _) => {
            apply_effect(pod, PendingEffect::ContainerStarted(id, now));
        }
        (Step::PostStart { id, .. }, StepOutcome::HookFailed(message)) => {
            let failed = PostStartState::Failed { message, at: now };
            pod.lifecycle.post_starts.insert(id, failed);
        }
        (Step::PostStart { id, .. }, _) => drop(pod.lifecycle.post_starts.remove(&id)),
        (Step::PreStop { id, .. }, _) => {
            if let Some(stop) = pod.lifecycle.stops.get_mut(&id) {
                stop.pre_stop_done = true;
            }
        }
        (Step::StopContainer { id, .. }, _) => {
            delay_unconfirmed_stop(pod, StepKey::StopContainer(id.clone()), now, &id);
        }
        (Step::StopSandbox { id }, _) => {
            pod.stopped_sandboxes.insert(id.clone());
            apply_effect(pod, PendingEffect::SandboxStopped(id));
        }
        (Step::RemoveContainer { id, .. } | Step::RemoveForRestart { id, .. }, _) => {
            remember_attempt(pod, &id);
            apply_effect(pod, PendingEffect::ContainerRemoved(id));
        }
        (Step::RemoveSandbox { id }, _) => apply_effect(pod, PendingEffect::SandboxRemoved(id)),
        (step @ (Step::ApplyVolumes | Step::ReleaseVolumes), outcome) => {
            observations::on_volume_call(pod, &step, outcome, now);
        }
        (Step::RemoveCgroup, _) => {
            pod.cgroup_removed = true;
            pod.cgroup_ready = false;
        }
        (Step::RemoveFiles, _) => pod.files_removed = true,
        (_, _) => {}
    }
}

/// Remembers the restart count of a container of a removed pod, which may start over.
fn remember_attempt(pod: &mut PodSyncStatus, id: &str) {
    let observed = pod.observed.as_ref();
    let removed = observed.and_then(|observed| observed.container(id));
    if let Some(removed) = removed.filter(|_| pod.removal_requested) {
        let next = removed.attempt.saturating_add(1);
        let attempts = &mut pod.min_container_attempts;
        let min_attempt = attempts.entry(removed.name.clone()).or_default();
        *min_attempt = next.max(*min_attempt);
    }
}

fn on_failed(pod: &mut PodSyncStatus, step: &Step, failure: StepFailure, now: Timestamp) {
    let key = step.key();
    let before = pod.failures.get(&key);
    let count = before.map_or(1, |backoff| backoff.count.saturating_add(1));
    let first_failed_at = before.map_or(now, |backoff| backoff.first_failed_at);
    match step {
        // The retry must not collide with the name of the first attempt.
        Step::CreateSandbox { attempt } if failure.outcome_unknown || failure.name_reserved => {
            pod.min_sandbox_attempt = pod.min_sandbox_attempt.max(attempt.saturating_add(1));
        }
        Step::CreateContainer {
            container, attempt, ..
        } if failure.name_reserved && count >= 5 => {
            pod.min_container_attempts
                .insert(container.clone(), attempt.saturating_add(1));
        }
        Step::CreateContainer { container, .. } if failure.image_missing => {
            pod.images.remove(container);
        }
        Step::PullImage { container } => drop(pod.image_searches.remove(container)),
        Step::EnsureCgroup => pod.cgroup_ready = false,
        // A full disk must not protect the pod that fills it: terminate it now, store it later.
        Step::CheckpointTermination(termination) if count >= 2 => {
            pod.checkpoint.termination = Some(termination.clone());
            pod.checkpointed = false;
        }
        _ => {}
    }
    let backoff = StepBackoff {
        count,
        retry_at: backoff::retry_at(&key, count, &failure, now),
        reason: failure.reason,
        message: failure.message,
        image: failure.image,
        first_failed_at,
        last_failed_at: now,
    };
    pod.failures.insert(key, backoff);
}
