//! The restart of all containers, requested by a container's restart rule
//! (`RestartAllContainers`).
//!
//! Every container is killed without grace period and removed, the one that requested the restart
//! last: while its record exists the restart is in progress, also for the next process instance.
//! Then the pod starts from its first init container, in the same sandbox. Logs stay. Restart counts,
//! and the back-off of the requesting container, continue
//! ([`crate::core::view::PodLifecycle::pending_restarts`]).

use polylet_model::ContainerKind;
use polylet_model::constants::reason;
use polylet_model::restart::RestartDecision;

use super::kill_container::{self, KillOptions};
use crate::core::plan::Plan;
use crate::core::pod_spec::PodSpecView;
use crate::core::pod_worker::{replacement, restart};
use crate::core::runtime_state::{ContainerRecord, ContainerState};
use crate::core::step::{Step, StepKey};
use crate::core::view::{PendingRestart, View};

/// Restarts all containers if one requests it; true while that is in progress.
pub fn restart_all(view: &View<'_>, pod: &PodSpecView, plan: &mut Plan) -> bool {
    if !is_in_progress(view, pod) {
        return false;
    }
    plan.wait_for("restart of all containers", None);
    if remove_others(view, pod, plan) {
        let containers = view.observed().containers.iter();
        for container in containers.filter(|c| requests_restart(view, pod, c)) {
            remove(view, pod, container, plan);
        }
    }
    true
}

/// Kills and removes the containers that did not request the restart; true when none is left.
fn remove_others(view: &View<'_>, pod: &PodSpecView, plan: &mut Plan) -> bool {
    let observed = view.observed();
    let mut none_left = true;
    for container in observed
        .containers
        .iter()
        .filter(|c| !requests_restart(view, pod, c))
    {
        if pod
            .container(&container.name)
            .is_some_and(|spec| spec.kind == ContainerKind::Ephemeral)
        {
            continue;
        }
        none_left = false;
        match container.state {
            ContainerState::Running | ContainerState::Unknown => {
                kill_container::kill_container(view, container, KillOptions::stop(0), plan);
            }
            ContainerState::Created | ContainerState::Exited => remove(view, pod, container, plan),
        }
    }
    for spec in &pod.containers {
        if view.is_starting(&spec.name) {
            none_left = false;
        } else if spec.kind != ContainerKind::Ephemeral
            && observed.newest_container(&spec.name).is_none()
        {
            plan.set_waiting(&spec.name, reason::RESTARTING_ALL_CONTAINERS, "", None);
        }
    }
    none_left
}

/// Whether a container requests the restart of all.
pub fn is_in_progress(view: &View<'_>, pod: &PodSpecView) -> bool {
    let containers = &view.observed().containers;
    containers.iter().any(|c| requests_restart(view, pod, c))
}

/// Whether a container's exit requests the restart, whoever ended it. One that is being replaced does not: upstream
/// sees no exit of it.
fn requests_restart(view: &View<'_>, pod: &PodSpecView, container: &ContainerRecord) -> bool {
    let Some(spec) = pod.container(&container.name) else {
        return false;
    };
    container.state == ContainerState::Exited
        && !container.aborted
        && view
            .observed()
            .newest_container(&container.name)
            .is_some_and(|newest| newest.id == container.id)
        && !replacement::is_pending(view, spec, container)
        && polylet_model::restart::after_exit(
            spec.kind,
            &spec.spec,
            pod.restart_policy,
            container.exit_code,
        ) == RestartDecision::RestartAll
}

/// Whether a container was killed for the restart: that alone is without a grace period if the pod has one. It has
/// not crashed, though its exit code may request the restart as well.
fn was_reset(view: &View<'_>, pod: &PodSpecView, container: &ContainerRecord) -> bool {
    let stop = view.pod.lifecycle.stops.get(&container.id);
    stop.is_some_and(|stop| !stop.restart && stop.grace_period == 0) && pod.grace_period > 0
}

fn remove(view: &View<'_>, pod: &PodSpecView, container: &ContainerRecord, plan: &mut Plan) {
    let (id, name) = (container.id.clone(), container.name.clone());
    if view.in_flight(&StepKey::StartContainer(name.clone())) {
        return;
    }
    if let Some(spec) = pod.container(&name) {
        let crashed = requests_restart(view, pod, container) && !was_reset(view, pod, container);
        let next = restart::next_attempt(view, spec);
        let pending = PendingRestart {
            attempt: next.attempt,
            backoff_step: if crashed {
                next.backoff_step
            } else {
                container.backoff_step
            },
            not_before: next.not_before.filter(|_| crashed),
        };
        if view.pod.lifecycle.pending_restarts.get(&name) != Some(&pending) {
            plan.pending_restarts.push((name.clone(), pending));
        }
    }
    plan.start_step(
        view,
        Step::RemoveForRestart {
            id,
            container: name,
        },
    );
}
