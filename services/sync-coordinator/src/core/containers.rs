//! Containers: kept running, stopped where something is wrong, started again by policy.

use polylet_model::ContainerKind;
use polylet_model::constants::reason;

use super::hooks::{self, Started};
use super::images::{self, ImageState};
use super::kill::{self, How};
use super::observed::{Phase, SeenContainer, SeenSandbox};
use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::{Unwell, View};
use super::wanted::{Wanted, WantedContainer};
use super::{resize, restart, volumes};

/// The order of starts among containers that may be made at once.
#[derive(Debug, Default)]
pub struct Start {
    /// An earlier container is on its way: later ones are made, and not yet started.
    pub earlier_under_way: bool,
}

/// Brings the main containers to run and keeps them so.
pub fn mains(view: &View<'_>, wanted: &Wanted, sandbox: &SeenSandbox, plan: &mut Plan) {
    let mut order = Start::default();
    for container in wanted.of_kind(ContainerKind::Regular) {
        keep(view, wanted, sandbox, container, plan, &mut order);
    }
}

/// Ephemeral containers start once, as soon as there is a sandbox.
pub fn ephemeral(view: &View<'_>, wanted: &Wanted, sandbox: &SeenSandbox, plan: &mut Plan) {
    for container in wanted.of_kind(ContainerKind::Ephemeral) {
        let seen = view.observed().newest(&container.name);
        if seen.is_none_or(|s| s.phase == Phase::Created) {
            start(
                view,
                wanted,
                sandbox,
                container,
                plan,
                &mut Start::default(),
            );
        }
    }
}

/// Keeps one container as it should be.
pub fn keep(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    container: &WantedContainer,
    plan: &mut Plan,
    order: &mut Start,
) {
    let seen = view.observed().newest_in(&container.name, &sandbox.id);
    match seen {
        Some(running) if running.phase == Phase::Running => {
            match hooks::after_start(view, container, running, plan) {
                // As upstream: whatever else is to be done with it waits as well.
                Started::Under => {
                    plan.note(&container.name, reason::POST_START_HOOK, "", None);
                    order.earlier_under_way = true;
                }
                Started::Failed => {
                    kill::container(view, running, How::end(wanted.grace), plan);
                    order.earlier_under_way = true;
                }
                Started::Whole => {
                    if let Some(how) = condemned(view, wanted, container, running) {
                        kill::container(view, running, how, plan);
                    }
                }
            }
        }
        Some(lost) if lost.phase == Phase::Unknown => {
            kill::container(view, lost, How::afresh(wanted.grace), plan);
        }
        _ => {
            if let Some(ended) = seen {
                hooks::give_up(view, ended, plan);
            }
            // A container of an older sandbox that came to a good end needs no second run.
            let last = seen.or_else(|| {
                let older = view.observed().newest(&container.name);
                older.filter(|o| o.succeeded() && container.kind == ContainerKind::Regular)
            });
            if restart::wanted_again(view, wanted, container, last) {
                start(view, wanted, sandbox, container, plan, order);
                if container.post_start.is_some() {
                    // Said early: who sees the container run shall know already.
                    plan.note(&container.name, reason::POST_START_HOOK, "", None);
                }
            }
        }
    }
}

fn differs(seen: &SeenContainer, container: &WantedContainer) -> bool {
    !seen.hash.is_empty() && seen.hash != container.hash
}

/// Whether a running container must be stopped, and how. A stop that has begun is carried through:
/// the container's preStop hook may have shut its work down.
fn condemned(
    view: &View<'_>,
    wanted: &Wanted,
    container: &WantedContainer,
    seen: &SeenContainer,
) -> Option<How> {
    if let Some(stop) = view.pod.lifecycle.stops.get(&seen.id) {
        return Some(How {
            again: stop.again,
            ..How::end(stop.grace)
        });
    }
    if container.kind != ContainerKind::Ephemeral && differs(seen, container) {
        return Some(How::afresh(wanted.grace));
    }
    if resize::restarts(view, container, seen) {
        return Some(How::afresh(wanted.grace));
    }
    let Unwell { startup, .. } = view.pod.unwell.get(&seen.id)?;
    let own = if *startup {
        container.startup_grace
    } else {
        container.liveness_grace
    };
    Some(How::afresh(own.unwrap_or(wanted.grace)))
}

/// Whether a container's making or starting is under way.
pub fn being_made(view: &View<'_>, name: &str) -> bool {
    view.in_flight(&StepKey::Create(name.to_owned()))
        || view.in_flight(&StepKey::Start(name.to_owned()))
}

/// Whether nothing among the main containers runs or will run again.
pub fn over(view: &View<'_>, wanted: &Wanted, sandbox: &SeenSandbox) -> bool {
    super::terminal::finished(view, wanted, sandbox, super::init::Progress::Done).is_some()
}

/// Moves a container towards its start. One that has waited out its crashes is told to do so until the
/// next one is made, as upstream does: that it had ended is no news.
fn start(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    container: &WantedContainer,
    plan: &mut Plan,
    order: &mut Start,
) {
    bring_up(view, wanted, sandbox, container, plan, order);
    restart::backed_off(view, wanted, container, plan);
}

fn bring_up(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    container: &WantedContainer,
    plan: &mut Plan,
    order: &mut Start,
) {
    hooks::tell_failure(view, container, plan);
    if being_made(view, &container.name) {
        plan.wait_for(format!("container {}", container.name), None);
        order.earlier_under_way = true;
        return;
    }
    let made = view.observed().newest_in(&container.name, &sandbox.id);
    let made = made.filter(|m| m.phase == Phase::Created && !differs(m, container));
    let next = restart::next(view, container);
    if made.is_none() && restart::backs_off(view, wanted, container, &next, plan) {
        return;
    }
    if failed(view, container, plan) {
        return;
    }
    if let Some(made) = made {
        if order.earlier_under_way {
            plan.wait_for(
                format!(
                    "container {} to start after the ones before it",
                    container.name
                ),
                None,
            );
        } else {
            let (name, id) = (container.name.clone(), made.id.clone());
            if container.post_start.is_some() {
                // How the hook failed last is old: it is about to run again.
                plan.notes.retain(|note| note.container != name);
            }
            plan.step(
                view,
                Step::StartContainer {
                    container: name,
                    attempt: made.attempt,
                    id,
                },
            );
        }
        order.earlier_under_way = true;
        return;
    }
    let image_ref = match images::ready(view, container, plan) {
        ImageState::Present(image_ref) => image_ref,
        ImageState::Coming => {
            order.earlier_under_way = true;
            return;
        }
        ImageState::Failed => return,
    };
    order.earlier_under_way = true;
    if !volumes::mounted(view, wanted, plan) {
        return;
    }
    if !view.pod.cgroup_ready {
        plan.step(view, Step::EnsureCgroup);
        return;
    }
    if let Some(what) = resize::unsettled(view, plan) {
        plan.wait_for(what, None);
        return;
    }
    plan.step(
        view,
        Step::CreateContainer {
            container: container.name.clone(),
            attempt: next.attempt,
            back_off_step: next.step,
            sandbox_id: sandbox.id.clone(),
            image_ref,
        },
    );
}

/// Whether the last try to make or start the container failed a moment ago; says so.
fn failed(view: &View<'_>, container: &WantedContainer, plan: &mut Plan) -> bool {
    for key in [
        StepKey::Create(container.name.clone()),
        StepKey::Start(container.name.clone()),
    ] {
        if let Some(failure) = view.held_back(&key) {
            plan.note(
                &container.name,
                &failure.reason,
                failure.message.clone(),
                Some(failure.retry_at),
            );
            plan.wake(failure.retry_at);
            return true;
        }
    }
    false
}
