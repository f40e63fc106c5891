//! The end of a pod: containers, then sandboxes, then what they stood on.

use jiff::{SignedDuration, Timestamp};
use polylet_model::ContainerKind;

use super::cleanup;
use super::kill::{self, How};
use super::observed::SeenContainer;
use super::plan::{OVERDUE, Phase, Plan};
use super::step::{Step, StepKey};
use super::view::View;
use super::wanted::WantedContainer;
use super::{hooks, volumes};

/// A pod that nobody wants any more: all of it goes.
pub fn leave(view: &View<'_>, plan: &mut Plan) {
    plan.phase = Phase::Terminating;
    plan.needs_sandbox = !stands(view);
    if view.observed().at.is_none() {
        // A former life may have begun it so late that the runtime's states do not tell of it yet.
        plan.asks = true;
        plan.wait_for("the runtime's word on the pod", None);
        return;
    }
    let still = halt(view, How::end(grace_of(view)), plan);
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
    let grace = grace_of(view);
    if !halt(view, How::end(grace), plan) {
        outlived(view, grace, plan);
        return;
    }
    if !volumes::released(view, plan) {
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

/// Room that was to be made is not there in time. So long waits upstream: half as long again as the
/// grace, and no less than it takes to talk to the runtime.
fn outlived(view: &View<'_>, grace: u32, plan: &mut Plan) {
    let ended = view.pod.journal.terminal.as_ref();
    let Some(ended) = ended.filter(|ended| ended.disruption_target) else {
        return;
    };
    let patience = SignedDuration::from_secs(i64::from(grace.saturating_add(grace / 2).max(10)));
    let late = ended.decided_at.checked_add(patience);
    let late = late.unwrap_or(Timestamp::MAX);
    if view.now < late {
        plan.wake(late);
    } else {
        plan.wait_for(OVERDUE, Some(late));
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

/// Stops every container and then every sandbox; true when all is still. All preStop hooks run at
/// once. Main containers stop at once; sidecars after them, the last one first, as long as the
/// grace lasts.
pub fn halt(view: &View<'_>, how: How, plan: &mut Plan) -> bool {
    let starting = view.pod.flights.iter().filter(|(key, _)| {
        matches!(
            key,
            StepKey::Sandbox | StepKey::Create(_) | StepKey::Start(_) | StepKey::Cgroup
        )
    });
    let mut still = true;
    let seen = view.observed();
    for ended in seen.containers.iter().filter(|c| !c.may_run()) {
        hooks::give_up(view, ended, plan);
    }
    for (_, flight) in starting {
        plan.wait_for("a start under way", Some(flight.since));
        still = false;
    }
    for container in seen.containers.iter().filter(|c| c.may_run()) {
        let in_turn = awaits_others(view, container);
        kill::container(view, container, How { in_turn, ..how }, plan);
        still = false;
    }
    if !still {
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

/// Whether a sidecar is to outlive others that still run: main containers, and the sidecars that
/// were started after it.
fn awaits_others(view: &View<'_>, container: &SeenContainer) -> bool {
    let Some(wanted) = view.pod.wanted.as_ref() else {
        return false;
    };
    let sidecar =
        |c: &&WantedContainer| c.kind == ContainerKind::Sidecar && c.name == container.name;
    let Some(me) = wanted.containers.iter().position(|c| sidecar(&c)) else {
        return false;
    };
    wanted.containers.iter().enumerate().any(|(at, other)| {
        let first = other.kind == ContainerKind::Regular
            || (other.kind == ContainerKind::Sidecar && at > me);
        let mut containers = view.observed().containers.iter();
        first && containers.any(|c| c.name == other.name && c.may_run())
    })
}
