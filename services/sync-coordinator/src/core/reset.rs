//! The restart of all containers together, which a container's rule asks for when it ends.
//!
//! Every container is killed without grace and its record removed, the one that asked for it last:
//! as long as it is there, the restart is under way, also for a later life of this process. Then
//! the pod starts from its first init container, in the same sandbox. Logs stay. Restart counts and
//! the back-off of the one that asked go on ([`super::hooks::Lifecycle`] remembers them).

use jiff::Timestamp;
use polylet_model::ContainerKind;
use polylet_model::constants::reason;
use polylet_model::restart::Decision;

use super::containers;
use super::kill::{self, How};
use super::observed::{Phase, SeenContainer};
use super::plan::Plan;
use super::restart;
use super::step::{Step, StepKey};
use super::view::View;
use super::wanted::Wanted;

/// What a container's next start follows on, though its record is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The attempt number.
    pub attempt: u32,
    /// How many crashes in a row it follows.
    pub step: u32,
    /// Nothing of the pod starts before.
    pub not_before: Option<Timestamp>,
}

/// Restarts all containers where one asks for it; true while that is under way.
pub fn all(view: &View<'_>, wanted: &Wanted, plan: &mut Plan) -> bool {
    if !under_way(view, wanted) {
        return false;
    }
    let seen = view.observed();
    let asks = |c: &SeenContainer| asks(view, wanted, c);
    plan.wait_for("all containers to restart", None);
    let mut others = 0;
    for container in seen.containers.iter().filter(|c| !asks(c)) {
        if wanted
            .container(&container.name)
            .is_some_and(|c| c.kind == ContainerKind::Ephemeral)
        {
            continue;
        }
        others += 1;
        match container.phase {
            Phase::Running | Phase::Unknown => {
                kill::container(view, container, How::end(0), plan);
            }
            Phase::Created | Phase::Exited => remove(view, wanted, container, plan),
        }
    }
    for container in &wanted.containers {
        if containers::being_made(view, &container.name) {
            others += 1;
        } else if container.kind != ContainerKind::Ephemeral
            && seen.newest(&container.name).is_none()
        {
            let word = reason::RESTARTING_ALL_CONTAINERS;
            plan.note(&container.name, word, "", None);
        }
    }
    if others == 0 {
        for container in seen.containers.iter().filter(|c| asks(c)) {
            remove(view, wanted, container, plan);
        }
    }
    true
}

/// Whether any container asks for it.
pub fn under_way(view: &View<'_>, wanted: &Wanted) -> bool {
    let seen = &view.observed().containers;
    seen.iter().any(|container| asks(view, wanted, container))
}

/// Whether a container's own end asks for it. One that was stopped, for a probe or with its
/// sandbox, does not.
fn asks(view: &View<'_>, wanted: &Wanted, seen: &SeenContainer) -> bool {
    let Some(container) = wanted.container(&seen.name) else {
        return false;
    };
    seen.phase == Phase::Exited
        && !seen.aborted
        && view
            .observed()
            .newest(&seen.name)
            .is_some_and(|c| c.id == seen.id)
        && !view.pod.lifecycle.stops.contains_key(&seen.id)
        && !view.pod.unwell.contains_key(&seen.id)
        && polylet_model::restart::after_exit(
            container.kind,
            &container.spec,
            wanted.restart,
            seen.exit_code,
        ) == Decision::RestartAll
}

fn remove(view: &View<'_>, wanted: &Wanted, seen: &SeenContainer, plan: &mut Plan) {
    let (id, name) = (seen.id.clone(), seen.name.clone());
    if view.in_flight(&StepKey::Start(name.clone())) {
        return;
    }
    if let Some(container) = wanted.container(&name) {
        let asked = asks(view, wanted, seen);
        let next = restart::next(view, container);
        let reset = Reset {
            attempt: next.attempt,
            // Only who asked has crashed.
            step: if asked { next.step } else { seen.back_off_step },
            not_before: next.not_before.filter(|_| asked),
        };
        if view.pod.lifecycle.resets.get(&name) != Some(&reset) {
            plan.resets.push((name.clone(), reset));
        }
    }
    plan.step(
        view,
        Step::ResetContainer {
            id,
            container: name,
        },
    );
}
