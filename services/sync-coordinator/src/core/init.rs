//! Init containers and sidecars, in their order.

use polylet_model::ContainerKind;

use super::containers::{self, Start};
use super::hooks;
use super::kill::{self, How};
use super::observed::{Phase, SeenSandbox};
use super::plan::Plan;
use super::restart;
use super::view::View;
use super::wanted::{Wanted, WantedContainer};

/// How far the init containers have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// On their way.
    Under,
    /// Main containers may run.
    Done,
    /// One failed and is not tried again.
    Failed,
}

/// Moves the init containers on. Once a main container exists in this sandbox
/// only sidecars are looked at: records of finished ones may be gone by then.
pub fn advance(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    plan: &mut Plan,
) -> Progress {
    let seen = view.observed();
    let past = wanted.of_kind(ContainerKind::Regular).any(|c| {
        seen.newest_in(&c.name, &sandbox.id).is_some() || containers::being_made(view, &c.name)
    });
    if past {
        for sidecar in wanted.of_kind(ContainerKind::Sidecar) {
            if !containers::over(view, wanted, sandbox) {
                containers::keep(view, wanted, sandbox, sidecar, plan, &mut Start::default());
            }
        }
        return Progress::Done;
    }
    // Only the newest known one matters: all before it have done their part.
    let inits: Vec<&WantedContainer> = wanted.inits().collect();
    let known = |c: &&WantedContainer| seen.newest_in(&c.name, &sandbox.id).is_some();
    let at = inits.iter().rposition(known).unwrap_or(0);
    for sidecar in inits
        .iter()
        .take(at)
        .filter(|c| c.kind == ContainerKind::Sidecar)
    {
        containers::keep(view, wanted, sandbox, sidecar, plan, &mut Start::default());
    }
    for container in inits.iter().skip(at) {
        match one(view, wanted, sandbox, container, plan) {
            Progress::Done => {}
            other => return other,
        }
    }
    Progress::Done
}

/// Moves one init container on; done when the next one may start.
fn one(
    view: &View<'_>,
    wanted: &Wanted,
    sandbox: &SeenSandbox,
    container: &WantedContainer,
    plan: &mut Plan,
) -> Progress {
    let seen = view.observed().newest_in(&container.name, &sandbox.id);
    if container.kind == ContainerKind::Sidecar {
        containers::keep(
            view,
            wanted,
            sandbox,
            container,
            plan,
            &mut Start::default(),
        );
        let started = seen.is_some_and(|s| {
            s.phase == Phase::Running
                && hooks::is_whole(view, container, s)
                && (!container.startup_probe || view.pod.startup_ok.contains(&s.id))
        });
        return if started {
            Progress::Done
        } else {
            Progress::Under
        };
    }
    match seen {
        Some(last)
            if last.phase == Phase::Exited && last.exit_code == 0 && last.reason != "OOMKilled" =>
        {
            Progress::Done
        }
        Some(last) if last.phase == Phase::Running => {
            plan.wait_for(
                format!("init container {}", container.name),
                last.started_at,
            );
            Progress::Under
        }
        Some(last)
            if last.phase == Phase::Exited
                && !last.aborted
                && !restart::after_exit(wanted, container, failed_code(last.exit_code)) =>
        {
            Progress::Failed
        }
        Some(last)
            if last.phase == Phase::Unknown && !restart::after_exit(wanted, container, 255) =>
        {
            kill::container(view, last, How::end(wanted.grace), plan);
            Progress::Failed
        }
        _ => {
            containers::keep(
                view,
                wanted,
                sandbox,
                container,
                plan,
                &mut Start::default(),
            );
            Progress::Under
        }
    }
}

/// The kernel may have killed one of the container's processes and left it to exit with zero.
fn failed_code(exit_code: i32) -> i32 {
    if exit_code == 0 { 137 } else { exit_code }
}
