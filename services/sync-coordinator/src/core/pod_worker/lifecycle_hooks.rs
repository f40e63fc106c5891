//! postStart hooks.
//!
//! postStart runs after a container's start and delays the start of later containers. preStop runs
//! before the stop signal, within the grace period ([`super::kill_container`]). As Kubernetes
//! documents, hooks run at least once: a hook in flight when this process dies is run again by the
//! next instance, a completed one is not.

use jiff::SignedDuration;
use polylet_model::constants::reason;

use crate::core::plan::Plan;
use crate::core::pod_spec::ContainerSpecView;
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::step::{Step, StepKey};
use crate::core::view::{PostStartState, View};

/// How long a hook failure is shown before the back-off that follows replaces it.
const SHOW_HOOK_ERROR_FOR: SignedDuration = SignedDuration::from_secs(2);

/// Progress of a running container's postStart hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostStartProgress {
    /// There is none, or it succeeded.
    Done,
    /// Due or in flight.
    Running,
    /// It failed.
    Failed,
}

/// Runs a running container's postStart hook if it is due.
pub fn run_post_start(
    view: &View<'_>,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
    plan: &mut Plan,
) -> PostStartProgress {
    let lifecycle = &view.pod.lifecycle;
    match lifecycle.post_starts.get(&container.id) {
        Some(PostStartState::Failed { .. }) => PostStartProgress::Failed,
        Some(PostStartState::Due) if !lifecycle.stops.contains_key(&container.id) => {
            let Some(hook) = spec.post_start.clone() else {
                return PostStartProgress::Done;
            };
            plan.start_step(
                view,
                Step::PostStart {
                    id: container.id.clone(),
                    container: spec.name.clone(),
                    hook,
                },
            );
            PostStartProgress::Running
        }
        _ => PostStartProgress::Done,
    }
}

/// Reports the containers whose postStart hook is due, however far the plan got: a new process may wait for
/// the runtime or for volumes first, while probes of the container succeed already.
pub fn report_due_post_starts(view: &View<'_>, plan: &mut Plan) {
    let Some(spec) = &view.pod.spec else {
        return;
    };
    let due = |id: &String| view.pod.lifecycle.post_starts.get(id) == Some(&PostStartState::Due);
    let observed = view.pod.observed.as_deref();
    let container = |id: &str| observed.and_then(|observed| observed.container(id));
    // Whose they are is not known before the runtime has been heard.
    let is_any_unknown = view
        .pod
        .lifecycle
        .post_starts
        .keys()
        .any(|id| due(id) && container(id).is_none());
    for container in spec.containers.iter().filter(|it| it.post_start.is_some()) {
        let newest = observed.and_then(|observed| observed.newest_container(&container.name));
        let is_due = match newest {
            Some(newest) => newest.state != ContainerState::Exited && due(&newest.id),
            None => is_any_unknown,
        };
        if is_due {
            plan.set_waiting(&container.name, reason::POST_START_HOOK, "", None);
        }
    }
}

/// Whether a running container's postStart hook no longer delays other containers.
pub fn is_post_start_done(
    view: &View<'_>,
    spec: &ContainerSpecView,
    container: &ContainerRecord,
) -> bool {
    match view.pod.lifecycle.post_starts.get(&container.id) {
        Some(PostStartState::Failed { .. }) => false,
        Some(PostStartState::Due) => spec.post_start.is_none(),
        None => true,
    }
}

/// Cancels the postStart hook of a container that is to be stopped.
pub fn abandon_post_start(view: &View<'_>, container: &ContainerRecord, plan: &mut Plan) {
    let key = StepKey::PostStart(container.id.clone());
    if view.in_flight(&key) {
        plan.abandoned.push(key);
    }
}

/// Cancels the hooks of a container that has exited.
pub fn abandon(view: &View<'_>, container: &ContainerRecord, plan: &mut Plan) {
    abandon_post_start(view, container, plan);
    let key = StepKey::PreStop(container.id.clone());
    if view.in_flight(&key) {
        plan.abandoned.push(key);
    }
}

/// Shows for a moment that the last start failed because of the postStart hook.
pub fn report_post_start_failure(view: &View<'_>, spec: &ContainerSpecView, plan: &mut Plan) {
    let Some(last) = view.observed().newest_container(&spec.name) else {
        return;
    };
    let post_start = view.pod.lifecycle.post_starts.get(&last.id);
    let Some(PostStartState::Failed { message, at }) = post_start else {
        return;
    };
    let shown_from = last.finished_at.unwrap_or(*at).max(*at);
    let until = shown_from
        .checked_add(SHOW_HOOK_ERROR_FOR)
        .unwrap_or(shown_from);
    if last.state == ContainerState::Exited && view.now < until {
        let reason = reason::POST_START_HOOK_ERROR;
        plan.set_waiting(&spec.name, reason, message.clone(), Some(until));
        plan.wake_by(until);
    }
}
