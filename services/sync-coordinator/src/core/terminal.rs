//! Decisions that a pod never runs again on this node.

use polylet_model::ContainerKind;
use polylet_model::constants::{phase, reason};

use super::init::Progress;
use super::observed::{Phase, SeenSandbox};
use super::plan::Plan;
use super::restart;
use super::view::{Terminal, View};
use super::wanted::Wanted;

/// An order or a deadline that ends the pod.
pub fn decide(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) -> Option<Terminal> {
    if let Some(order) = &view.pod.order {
        return Some(order.clone());
    }
    let (began, allowed) = (view.pod.journal.acknowledged_at?, wanted.active_deadline?);
    let due = began
        .checked_add(jiff::SignedDuration::try_from(allowed).ok()?)
        .ok()?;
    if due > view.now {
        plan.wake(due);
        return None;
    }
    Some(Terminal {
        reason: reason::DEADLINE_EXCEEDED.to_owned(),
        message: "Pod was active on the node longer than the specified deadline".to_owned(),
        phase: phase::FAILED.to_owned(),
        disruption_target: false,
        decided_at: view.now,
        grace: None,
    })
}

/// Whether the pod has come to its own end: nothing of it runs or will run again.
pub fn finished(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    init: Progress,
) -> Option<Terminal> {
    match init {
        Progress::Failed => return Some(own_end(view, false)),
        Progress::Under => return None,
        Progress::Done => {}
    }
    let seen = view.observed();
    let mut all_good = true;
    for container in wanted.of_kind(ContainerKind::Regular) {
        let newest = seen
            .newest_in(&container.name, &sandbox.id)
            .or_else(|| seen.newest(&container.name))?;
        if newest.phase != Phase::Exited
            || restart::wanted_again(view, wanted, container, Some(newest))
        {
            return None;
        }
        all_good &= newest.exit_code == 0;
    }
    Some(own_end(view, all_good))
}

/// The end of a pod whose sandbox is gone and is not made again.
pub fn without_sandbox(view: &View<'_>, wanted: &Wanted) -> Terminal {
    let seen = view.observed();
    let good = wanted
        .containers
        .iter()
        .filter(|c| c.kind != ContainerKind::Ephemeral && c.kind != ContainerKind::Sidecar)
        .all(|c| seen.newest(&c.name).is_some_and(|s| s.succeeded()));
    own_end(view, good)
}

fn own_end(view: &View<'_>, good: bool) -> Terminal {
    Terminal {
        reason: String::new(),
        message: String::new(),
        phase: if good {
            phase::SUCCEEDED
        } else {
            phase::FAILED
        }
        .to_owned(),
        disruption_target: false,
        decided_at: view.now,
        grace: None,
    }
}
