//! Steps in flight: starts them, and applies their results and the runtime's state after them.

use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_wire::pleg::v1::PodState;

use crate::convert;
use crate::core::apply_result;
use crate::core::step::{Step, StepKey, StepOutcome};
use crate::core::view::PodSyncStatus;
use crate::effects::Effects;
use crate::runtime::{StepContext, trace};
use crate::state::State;
use crate::state::device_requests;
use crate::state::pod_worker::{ObjectWatchGuard, RefreshScope};
use crate::state::pod_workers::PodWorkers;

/// Starts a step of a pod.
pub(super) fn start_step(effects: &dyn Effects, state: &mut State, uid: &str, step: Step) {
    let sequence = state.volumes.next_sequence();
    let allocated = &state.node.state.resources.allocated;
    let qos_requests = match step {
        Step::EnsureCgroup => allocated.class_requests("", None),
        Step::RemoveCgroup => allocated.class_requests(uid, None),
        Step::Resize { .. } => {
            let worker = state.workers.get(uid);
            let request = worker.and_then(|worker| worker.pod.checkpoint.request.as_deref());
            allocated.class_requests(uid, request)
        }
        _ => Default::default(),
    };
    let device_request = match step {
        Step::AllocateDevices | Step::PrepareDevices { .. } => {
            device_requests::pod_request(state, uid)
        }
        _ => None,
    };
    let Some(worker) = state.workers.get_mut(uid) else {
        return;
    };
    let key = step.key();
    let pod = &worker.pod;
    let context = StepContext {
        pod: worker.reference.clone(),
        manifest: match step {
            // The cgroup must fit what its containers still have.
            Step::EnsureCgroup => worker.cgroup_manifest(),
            _ => worker.allocated_manifest(),
        },
        observed: pod.observed.clone().unwrap_or_default(),
        volumes: pod
            .volumes
            .reported
            .as_ref()
            .map(|(_, volumes)| Rc::clone(volumes))
            .unwrap_or_default(),
        device_request,
        prepared_devices: match &step {
            Step::PrepareSubPaths { container, .. } | Step::CreateContainer { container, .. } => {
                pod.prepared_devices.get(container).cloned()
            }
            _ => None,
        },
        sub_paths: match &step {
            Step::CreateContainer { container, .. } => pod.sub_paths.get(container).cloned(),
            _ => None,
        }
        .unwrap_or_default(),
        checkpoint: (key == StepKey::Checkpoint).then(|| step.checkpoint_after(&pod.checkpoint)),
        step,
        sequence,
        client_epoch: state.volumes.client_epoch(),
        qos_requests,
        runtime_handlers: Arc::clone(&state.node.runtime_handlers),
        host_ips: Arc::clone(&state.node.host_ips),
        cause: worker.cause.clone(),
    };
    let span = trace::step_span(&context);
    worker.last_step = Some(trace::cause_of(&span))
        .filter(|cause| !cause.traceparent.is_empty())
        .or(worker.cause.clone());
    if let Some(token) = effects.execute(context, span) {
        worker.cancel_tokens.insert(key, token);
    }
}

/// Requests the runtime's state of a pod after this service's own effects.
pub(super) fn refresh_pod(
    effects: &dyn Effects,
    state: &mut State,
    uid: &str,
    scope: RefreshScope,
) {
    let Some(worker) = state.workers.get_mut(uid) else {
        return;
    };
    if worker.refresh.in_flight {
        worker.refresh.again = worker.refresh.again.max(Some(scope));
        return;
    }
    worker.refresh.in_flight = true;
    worker.refresh.sent_at = worker.pod.last_reported.observed_at;
    // The response shows the effect of the last step, so its trace continues there.
    let span = trace::refresh_span(&worker.reference, worker.last_step.as_ref());
    let changes = match scope {
        RefreshScope::PendingEffects => convert::pending_changes(&worker.pod),
        RefreshScope::Everything => Vec::new(),
    };
    let effect_count = worker.pod.effect_count;
    effects.refresh_pod(&worker.reference, effect_count, changes, span);
}

/// Applies the result of a step; true if volume-manager believes another client than this one.
#[must_use]
pub(super) fn finish_step(
    effects: &dyn Effects,
    state: &mut State,
    uid: &PodUid,
    key: &StepKey,
    outcome: StepOutcome,
    observed: Option<PodState>,
    now: Timestamp,
) -> bool {
    if !matches!(outcome, StepOutcome::Failed(_) | StepOutcome::Cancelled) {
        state.record_start_call(uid, key, now);
    }
    let Some(worker) = state.workers.get_mut(uid) else {
        return false;
    };
    worker.cancel_tokens.remove(key);
    let needs_refresh =
        observed.is_some_and(|observed| worker.on_observed(convert::runtime_pod(&observed), now));
    // Ends the watch.
    worker.object_watches.remove(key);
    if let StepOutcome::Failed(failure) = &outcome
        && let Some(missing) = &failure.missing
    {
        let token = effects.watch_object(uid, key, (**missing).clone());
        let watch = ObjectWatchGuard::new(token);
        worker.object_watches.insert(key.clone(), watch);
    }
    let failed = matches!(outcome, StepOutcome::Failed(_));
    let arrived = match &outcome {
        StepOutcome::ImagePulled { image, .. } => Some(image.clone()),
        _ => None,
    };
    let superseded = apply_result::is_superseded(&worker.pod, &outcome);
    apply_result::on_finished(&mut worker.pod, key, outcome, now);
    let removal = worker.pod.removal_requested && !worker.pod.starts_over();
    let scope = refresh_scope(key, failed, removal);
    if let Some(scope) = scope.max(needs_refresh.then_some(RefreshScope::Everything)) {
        refresh_pod(effects, state, uid, scope);
    }
    state.workers.queue.push(uid);
    state.workers.update_failed_pulls(uid);
    if let Some(image) = arrived {
        wake_waiting_for_image(&mut state.workers, uid, &image);
    }
    superseded
}

/// What pleg has to inspect after a step, if anything.
fn refresh_scope(key: &StepKey, failed: bool, removal: bool) -> Option<RefreshScope> {
    let changes = match key {
        // The step itself has had pleg inspect the new sandbox.
        StepKey::CreateSandbox | StepKey::CreateContainer(_) | StepKey::StopContainer(_) => failed,
        StepKey::StartContainer(_) | StepKey::RemoveSandbox(_) => true,
        StepKey::StopSandbox(_) | StepKey::RemoveContainer(_) => failed || !removal,
        _ => false,
    };
    let scope = if failed {
        RefreshScope::Everything
    } else {
        RefreshScope::PendingEffects
    };
    changes.then_some(scope)
}

/// Has other pods look for an image whose pull they could not complete.
fn wake_waiting_for_image(workers: &mut PodWorkers, uid: &PodUid, image: &str) {
    let mut waiting = workers.pods_without_image(image);
    waiting.retain(|other| other != uid);
    for other in waiting {
        if let Some(worker) = workers.get_mut(&other)
            && apply_result::on_image_arrived(&mut worker.pod, image)
        {
            workers.queue.push(&other);
        }
    }
}

/// Retries a step now that the object which it lacked is available.
pub(super) fn retry_step(state: &mut State, uid: &PodUid, key: &StepKey, now: Timestamp) {
    if let Some(worker) = state.workers.get_mut(uid) {
        worker.object_watches.remove(key);
        apply_result::retry_now(&mut worker.pod, key, now);
        state.workers.queue.push(uid);
    }
}

/// Applies the response to a refresh.
pub(super) fn finish_refresh(
    effects: &dyn Effects,
    state: &mut State,
    uid: PodUid,
    effect_count: u64,
    observed: Option<PodState>,
    now: Timestamp,
) {
    let Some(worker) = state.workers.get_mut(&uid) else {
        return;
    };
    worker.refresh.in_flight = false;
    let mut again = worker.refresh.again.take();
    if let Some(observed) = observed {
        let observed = convert::runtime_pod(&observed);
        let sent_at = worker.refresh.sent_at;
        if apply_result::on_refreshed(&mut worker.pod, observed, effect_count, sent_at, now) {
            again = Some(RefreshScope::Everything);
        }
    }
    if let Some(scope) = again.filter(|scope| !is_known_to_be_gone(&worker.pod, *scope)) {
        refresh_pod(effects, state, &uid, scope);
    }
    state.workers.queue.push(&uid);
}

/// Whether pleg has confirmed all that it would be asked about, and that the runtime has nothing of the pod.
fn is_known_to_be_gone(pod: &PodSyncStatus, scope: RefreshScope) -> bool {
    let observed = pod.observed.as_deref();
    scope == RefreshScope::PendingEffects
        && pod.pending_effects.is_empty()
        && observed.is_some_and(|observed| observed.is_empty() && !observed.is_partial())
}
