//! The end of a pod: containers, then sandboxes, then what they stood on.

use jiff::Timestamp;
use polylet_model::ContainerKind;

use super::cleanup;
use super::observed::SeenContainer;
use super::plan::{Phase, Plan, Step, StepKey};
use super::view::View;
use super::{containers, volumes};

/// A pod that nobody wants any more: all of it goes.
pub fn leave(view: &View<'_>, plan: &mut Plan) {
    plan.phase = Phase::Terminating;
    plan.needs_sandbox = !stands(view);
    let still = halt(view, grace_of(view), plan);
    let released = still && volumes::released(view, plan);
    if still {
        cleanup::remove_all(view, released, plan);
    }
}

/// A pod that has come to its end and stays on record.
pub fn end(view: &View<'_>, plan: &mut Plan) {
    plan.needs_sandbox = !stands(view);
    if view.pod.journal.torn_down
        && !view
            .observed()
            .containers
            .iter()
            .any(SeenContainer::may_run)
    {
        plan.phase = Phase::Terminated;
        cleanup::dead_records(view, plan);
        return;
    }
    plan.phase = Phase::Terminating;
    if !view.pod.journalled {
        plan.step(view, Step::Journal);
    }
    if !halt(view, grace_of(view), plan) || !volumes::released(view, plan) {
        return;
    }
    if !view.pod.cgroup_gone {
        plan.step(view, Step::RemoveCgroup);
        return;
    }
    if view.pod.journalled && !view.pod.journal.torn_down {
        plan.step(view, Step::TornDown);
    }
}

fn stands(view: &View<'_>) -> bool {
    view.observed().sandboxes.iter().any(|s| s.ready)
}

/// The grace of this end.
fn grace_of(view: &View<'_>) -> u32 {
    let pod = view.pod;
    let order = pod
        .order
        .as_ref()
        .or(pod.journal.terminal.as_ref())
        .and_then(|t| t.grace);
    let own = match &pod.wanted {
        Some(wanted) => wanted.stop_grace(),
        // What the containers were made with; nothing else is known of an orphan.
        None => view
            .observed()
            .containers
            .iter()
            .filter_map(|c| c.grace)
            .max()
            .unwrap_or(1),
    };
    order.map_or(own, |order| order.min(own)).max(1)
}

/// Stops every container and then every sandbox; true when all is still. Main
/// containers stop at once; sidecars after them, the last one first, within
/// what is left of the grace.
pub fn halt(view: &View<'_>, grace: u32, plan: &mut Plan) -> bool {
    let starting = view.pod.flights.iter().filter(|(key, _)| {
        matches!(
            key,
            StepKey::Sandbox | StepKey::Create(_) | StepKey::Start(_) | StepKey::Cgroup
        )
    });
    let mut still = true;
    for (_, flight) in starting {
        plan.wait_for("a start under way", Some(flight.since));
        still = false;
    }
    let seen = view.observed();
    let running: Vec<&SeenContainer> = seen.containers.iter().filter(|c| c.may_run()).collect();
    let (sidecars, others): (Vec<_>, Vec<_>) = running
        .into_iter()
        .partition(|c| sidecar_place(view, c).is_some());
    for container in &others {
        containers::stop(view, container, grace, plan);
    }
    if others.is_empty()
        && let Some(last) = sidecars.iter().max_by_key(|c| sidecar_place(view, c))
    {
        containers::stop(view, last, left_of(view, grace), plan);
    }
    if !still || !others.is_empty() || !sidecars.is_empty() {
        return false;
    }
    let mut all = true;
    for sandbox in &seen.sandboxes {
        let stopped = view.pod.stopped_sandboxes.contains(&sandbox.id)
            || (view.pod.journal.torn_down && !sandbox.ready);
        if !stopped {
            plan.step(
                view,
                Step::StopSandbox {
                    id: sandbox.id.clone(),
                },
            );
            all = false;
        }
    }
    all
}

/// A sidecar's place in the order of starts; `None` for other containers.
fn sidecar_place(view: &View<'_>, container: &SeenContainer) -> Option<usize> {
    let wanted = view.pod.wanted.as_ref()?;
    wanted
        .containers
        .iter()
        .position(|c| c.kind == ContainerKind::Sidecar && c.name == container.name)
}

fn left_of(view: &View<'_>, grace: u32) -> u32 {
    let began: Timestamp = view.pod.stop_began.unwrap_or(view.now);
    let passed = u32::try_from(view.now.duration_since(began).as_secs()).unwrap_or(0);
    grace.saturating_sub(passed)
}
