//! Records that nobody needs any more.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::observed::{Phase, SeenContainer, SeenSandbox};
use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::View;

/// How long a pod of which nothing is left is still told of.
const LINGER: SignedDuration = SignedDuration::from_secs(1);

/// Removes everything of a pod that has been stopped. The sandboxes' records go
/// last: they alone tell a later life of this process what the pod is called.
pub fn remove_all(view: &View<'_>, released: bool, plan: &mut Plan) {
    let seen = view.observed();
    for container in &seen.containers {
        remove_container(view, container, plan);
    }
    if !seen.containers.is_empty() {
        return;
    }
    if !view.pod.cgroup_gone {
        plan.step(view, Step::RemoveCgroup);
    }
    if released && !view.pod.files_gone {
        plan.step(view, Step::RemoveFiles);
    }
    if !view.pod.cgroup_gone || !view.pod.files_gone {
        return;
    }
    for sandbox in &seen.sandboxes {
        plan.step(
            view,
            Step::RemoveSandbox {
                id: sandbox.id.clone(),
            },
        );
    }
    let removing =
        |key: &StepKey| matches!(key, StepKey::RemoveContainer(_) | StepKey::RemoveSandbox(_));
    if seen.sandboxes.is_empty() && !view.pod.flights.keys().any(removing) {
        plan.phase = super::plan::Phase::Reclaimed;
    }
}

/// Keeps the newest ended container of each name in the sandbox that stands, and
/// drops sandboxes that nothing is in.
pub fn old_records(view: &View<'_>, standing: &SeenSandbox, plan: &mut Plan) {
    dead_records(view, plan);
    let seen = view.observed();
    for sandbox in seen
        .sandboxes
        .iter()
        .filter(|s| s.id != standing.id && !s.ready)
    {
        if seen.containers.iter().any(|c| c.sandbox_id == sandbox.id) {
            continue;
        }
        let id = sandbox.id.clone();
        // Stopped once more first: its network may still be there.
        if view.pod.stopped_sandboxes.contains(&id) {
            plan.step(view, Step::RemoveSandbox { id });
        } else {
            plan.step(view, Step::StopSandbox { id });
        }
    }
}

/// Keeps the newest ended container of each name and drops the older ones.
pub fn dead_records(view: &View<'_>, plan: &mut Plan) {
    let mut by_name: BTreeMap<&str, Vec<&SeenContainer>> = BTreeMap::new();
    for container in view
        .observed()
        .containers
        .iter()
        .filter(|c| c.phase == Phase::Exited)
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

/// After everything: told for a moment, then forgotten.
pub fn linger(view: &View<'_>, plan: &mut Plan) {
    let Some(since) = view.pod.reclaimed_at else {
        return;
    };
    let deleting = view
        .pod
        .wanted
        .as_ref()
        .is_some_and(|w| w.deletion_grace.is_some());
    if view.pod.listed {
        // Wanted again under the same uid: it starts afresh. Else its source still has to let it go.
        plan.forget = !deleting;
        return;
    }
    match since.checked_add(LINGER) {
        // Not longer should the clock have been set back.
        Ok(due) if since <= view.now && view.now < due => plan.wake(due),
        _ => plan.forget = true,
    }
}

fn remove_container(view: &View<'_>, container: &SeenContainer, plan: &mut Plan) {
    let (id, name) = (container.id.clone(), container.name.clone());
    plan.step(
        view,
        Step::RemoveContainer {
            id,
            container: name,
        },
    );
}
