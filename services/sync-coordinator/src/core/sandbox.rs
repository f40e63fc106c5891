//! Whether the pod needs a new sandbox.

use polylet_model::{ContainerKind, RestartPolicy};

use super::images;
use super::kill::How;
use super::observed::SeenSandbox;
use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::View;
use super::wanted::Wanted;
use super::{restart, stop, terminal, volumes};

/// The sandbox that the pod's containers belong in. Without one, plans what
/// leads to it: the old one's end, the cgroup, the new one, images meanwhile.
pub fn stand<'a>(view: &View<'a>, wanted: &Wanted, plan: &mut Plan) -> Option<&'a SeenSandbox> {
    if let Some(flight) = view.pod.flights.get(&StepKey::Sandbox) {
        plan.needs_sandbox = true;
        plan.wait_for("sandbox", Some(flight.since));
        images::ahead(view, wanted, plan);
        return None;
    }
    if let Some(sandbox) = standing(view, wanted) {
        spare(view, sandbox, plan);
        return Some(sandbox);
    }
    plan.needs_sandbox = true;
    let seen = view.observed();
    if !remake(view, wanted) {
        if stop::halt(view, How::afresh(wanted.stop_grace()), plan) {
            plan.step(view, Step::Decide(terminal::without_sandbox(view, wanted)));
        }
        return None;
    }
    if !wanted.host_network
        && let Err(why) = &view.node.network
    {
        plan.wait_for(format!("the pod network: {why}"), None);
        return None;
    }
    images::ahead(view, wanted, plan);
    // What is left of the old sandbox ends before the new one begins.
    if !seen.is_empty() && !stop::halt(view, How::afresh(wanted.stop_grace()), plan) {
        return None;
    }
    if !view.pod.cgroup_ready {
        plan.step(view, Step::EnsureCgroup);
        return None;
    }
    if !volumes::at_hand(view, wanted, plan) {
        return None;
    }
    let next = seen
        .newest_sandbox()
        .map_or(0, |newest| newest.attempt.saturating_add(1));
    plan.step(
        view,
        Step::CreateSandbox {
            attempt: next.max(view.pod.sandbox_floor),
        },
    );
    None
}

/// The sandbox to keep: ready, in the right network, with an address; of several
/// the one in which containers are, else the newest.
fn standing<'a>(view: &View<'a>, wanted: &Wanted) -> Option<&'a SeenSandbox> {
    let seen = view.observed();
    seen.sandboxes
        .iter()
        .filter(|s| {
            s.ready
                && s.host_network == wanted.host_network
                && (s.host_network || !s.ips.is_empty())
        })
        .filter(|s| !view.pod.stopped_sandboxes.contains(&s.id))
        .max_by_key(|s| {
            (
                seen.containers
                    .iter()
                    .any(|c| c.sandbox_id == s.id && c.may_run()),
                s.attempt,
                s.created_at,
            )
        })
}

/// Stops sandboxes beside the one that is kept: a call that was thought lost may
/// have come to its end after all.
fn spare(view: &View<'_>, kept: &SeenSandbox, plan: &mut Plan) {
    for other in view
        .observed()
        .sandboxes
        .iter()
        .filter(|s| s.id != kept.id && s.ready)
    {
        plan.step(
            view,
            Step::StopSandbox {
                id: other.id.clone(),
            },
        );
    }
}

/// Whether a lost sandbox is made again: not when nothing in it would start.
fn remake(view: &View<'_>, wanted: &Wanted) -> bool {
    let seen = view.observed();
    if seen.containers.is_empty() {
        return true;
    }
    let stays = |container| !restart::after_kill(wanted, container);
    if wanted.restart == RestartPolicy::Never && wanted.of_kind(ContainerKind::Regular).all(stays) {
        return false;
    }
    wanted
        .of_kind(ContainerKind::Regular)
        .any(|container| match seen.newest(&container.name) {
            // One that was only stopped with its sandbox has not come to a good end.
            Some(last) if last.succeeded() => {
                restart::wanted_again(view, wanted, container, Some(last))
            }
            _ => true,
        })
}
