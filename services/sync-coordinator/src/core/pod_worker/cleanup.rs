//! Removal of records that are no longer needed.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::core::plan::{Plan, SyncPhase};
use crate::core::runtime_state::{ContainerRecord, ContainerState, SandboxRecord};
use crate::core::step::{Step, StepKey};
use crate::core::view::View;

/// How long a removed pod stays published.
const FORGET_DELAY: SignedDuration = SignedDuration::from_secs(1);

/// Removes everything of a stopped pod. Sandboxes go last: only their records tell the next process
/// instance the pod's name.
pub fn remove_all(view: &View<'_>, volumes_released: bool, plan: &mut Plan) {
    let observed = view.observed();
    for container in &observed.containers {
        remove_container(view, container, plan);
    }
    if !observed.containers.is_empty() {
        return;
    }
    if !view.pod.cgroup_removed {
        plan.start_step(view, Step::RemoveCgroup);
    }
    if volumes_released && !view.pod.files_removed {
        plan.start_step(view, Step::RemoveFiles);
    }
    if !view.pod.cgroup_removed || !view.pod.files_removed {
        return;
    }
    for sandbox in &observed.sandboxes {
        let id = sandbox.id.clone();
        plan.start_step(view, Step::RemoveSandbox { id });
    }
    let removing =
        |key: &StepKey| matches!(key, StepKey::RemoveContainer(_) | StepKey::RemoveSandbox(_));
    if observed.sandboxes.is_empty() && !view.pod.in_flight.keys().any(removing) {
        plan.phase = SyncPhase::CleanedUp;
    }
}

/// Removes all but the newest exited container of each name, and old sandboxes without containers.
pub fn remove_old_records(view: &View<'_>, current: &SandboxRecord, plan: &mut Plan) {
    remove_dead_containers(view, plan);
    let observed = view.observed();
    for sandbox in observed
        .sandboxes
        .iter()
        .filter(|s| s.id != current.id && !s.ready)
    {
        if observed
            .containers
            .iter()
            .any(|c| c.sandbox_id == sandbox.id)
        {
            continue;
        }
        let id = sandbox.id.clone();
        // Stopped by us first: its network may still be set up.
        if view.pod.stopped_sandboxes.contains(&id) {
            plan.start_step(view, Step::RemoveSandbox { id });
        } else {
            plan.start_step(view, Step::StopSandbox { id });
        }
    }
}

/// Removes all but the newest exited container of each name.
pub fn remove_dead_containers(view: &View<'_>, plan: &mut Plan) {
    let mut by_name: BTreeMap<&str, Vec<&ContainerRecord>> = BTreeMap::new();
    for container in view
        .observed()
        .containers
        .iter()
        .filter(|c| c.state == ContainerState::Exited)
    {
        by_name.entry(&container.name).or_default().push(container);
    }
    for (_, mut dead) in by_name {
        dead.sort_by_key(|c| (c.attempt, c.created_at));
        dead.pop();
        for old in dead {
            remove_container(view, old, plan);
        }
    }
}

/// Forgets a removed pod after a moment, so that watchers see its last state.
pub fn forget_after_delay(view: &View<'_>, plan: &mut Plan) {
    let Some(since) = view.pod.cleaned_up_at else {
        return;
    };
    let deleting = view
        .pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.deletion_grace_period.is_some());
    if view.pod.has_source {
        // Served again under the same UID: it starts over. A deleted pod stays until its source
        // drops it.
        plan.forget = !deleting;
        return;
    }
    match since.checked_add(FORGET_DELAY) {
        // A backward clock step must not prolong the delay.
        Ok(due) if since <= view.now && view.now < due => plan.wake_by(due),
        _ => plan.forget = true,
    }
}

fn remove_container(view: &View<'_>, container: &ContainerRecord, plan: &mut Plan) {
    plan.start_step(
        view,
        Step::RemoveContainer {
            id: container.id.clone(),
            container: container.name.clone(),
        },
    );
}
