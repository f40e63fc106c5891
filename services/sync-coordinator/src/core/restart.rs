//! Whether an ended container starts again, and when.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_model::ContainerKind;
use polylet_model::constants::reason;
use polylet_model::restart::{self, BackOff, Decision, Exit};

use super::observed::{Phase, SeenContainer};
use super::plan::Plan;
use super::resize;
use super::view::View;
use super::wanted::{Wanted, WantedContainer};

/// The runtime's clock is ours, read a moment apart.
const JITTER: SignedDuration = SignedDuration::from_secs(1);

/// Whether a container that is not running should be (re)started.
pub fn wanted_again(
    view: &View<'_>,
    wanted: &Wanted,
    container: &WantedContainer,
    seen: Option<&SeenContainer>,
) -> bool {
    let Some(seen) = seen else { return true };
    match seen.phase {
        Phase::Running => false,
        Phase::Created => true,
        Phase::Unknown => container.kind != ContainerKind::Ephemeral,
        Phase::Exited if seen.aborted => true,
        Phase::Exited if replaced(view, &seen.id) => {
            seen.hash != container.hash || after_kill(wanted, container)
        }
        // The kernel killed one of its processes and left it to exit with zero.
        Phase::Exited
            if container.kind == ContainerKind::Init
                && seen.exit_code == 0
                && seen.reason == "OOMKilled" =>
        {
            after_exit(wanted, container, 137)
        }
        Phase::Exited => after_exit(wanted, container, seen.exit_code),
    }
}

/// Whether an ended container was stopped so that it starts afresh. Its end may
/// be heard before the end of the call that stopped it.
fn replaced(view: &View<'_>, id: &str) -> bool {
    view.pod.unwell.contains_key(id)
        || view
            .pod
            .lifecycle
            .stops
            .get(id)
            .is_some_and(|stop| stop.again)
}

/// Whether an end with this exit code is followed by a start.
pub fn after_exit(wanted: &Wanted, container: &WantedContainer, exit_code: i32) -> bool {
    // The restart of all containers together has no room of its own yet: the
    // container that asked for it starts again by itself.
    restart::after_exit(container.kind, &container.spec, wanted.restart, exit_code)
        != Decision::Stay
}

/// Whether a container that was stopped for a probe, or with its sandbox, is started again.
pub fn after_kill(wanted: &Wanted, container: &WantedContainer) -> bool {
    restart::after_kill(container.kind, &container.spec, wanted.restart) != Decision::Stay
}

/// What follows on the last end of a container: its step, and not before when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The attempt number.
    pub attempt: u32,
    /// How many crashes in a row it follows.
    pub step: u32,
    /// Not before this moment.
    pub not_before: Option<Timestamp>,
    /// The pause.
    pub delay: Duration,
}

/// The next start of a container, from its last end alone.
pub fn next(view: &View<'_>, container: &WantedContainer) -> Next {
    let floor = view
        .pod
        .attempt_floor
        .get(&container.name)
        .copied()
        .unwrap_or(0);
    let Some(last) = view.observed().newest(&container.name) else {
        return first(view, container, floor);
    };
    let attempt = floor.max(last.attempt.saturating_add(1));
    let ended = last.phase == Phase::Exited && !last.aborted;
    // An end that lies ahead was noted before the clock was set back: it is not waited for.
    let passed = |at: &Timestamp| at.duration_since(view.now) <= JITTER;
    let Some(finished_at) = last.finished_at.filter(|at| ended && passed(at)) else {
        return Next {
            attempt,
            step: last.back_off_step,
            not_before: None,
            delay: Duration::ZERO,
        };
    };
    let exit = Exit {
        attempt: last.attempt,
        step: Some(last.back_off_step),
        started_at: last.started_at,
        finished_at,
        spec_changed: last.hash != container.hash || !resize::is_settled(view, container, last),
    };
    let next = BackOff::with_cap(view.node.crash_cap).after(&exit);
    Next {
        attempt,
        step: next.step,
        not_before: Some(next.not_before),
        delay: next.delay,
    }
}

/// The next start of a container that has no record: its first one, or one with all others.
fn first(view: &View<'_>, container: &WantedContainer, floor: u32) -> Next {
    let resets = &view.pod.lifecycle.resets;
    // Only a clock that was set back makes it longer.
    let longest = SignedDuration::try_from(view.node.crash_cap).unwrap_or(SignedDuration::MAX);
    let mine = resets.get(&container.name);
    let step = mine.map_or(0, |reset| reset.step);
    Next {
        attempt: mine.map_or(floor, |reset| reset.attempt.max(floor)),
        step,
        not_before: resets
            .values()
            .filter_map(|reset| reset.not_before)
            .filter(|due| due.duration_since(view.now) <= longest)
            .max(),
        delay: BackOff::with_cap(view.node.crash_cap).delay(step.saturating_sub(1)),
    }
}

/// The number of a container of which the runtime holds no record: none that a log of the same
/// name was written under, should the runtime have lost it.
pub fn unused_attempt(planned: u32, logs: impl IntoIterator<Item = u32>) -> u32 {
    let after = logs.into_iter().max().map_or(0, |n| n.saturating_add(1));
    planned.max(after)
}

/// Whether the container must wait out its crashes; says so.
pub fn backs_off(
    view: &View<'_>,
    wanted: &Wanted,
    container: &WantedContainer,
    next: &Next,
    plan: &mut Plan,
) -> bool {
    let Some(due) = next.not_before.filter(|due| *due > view.now) else {
        return false;
    };
    tell(view, wanted, container, (next, due), plan);
    plan.wake(due);
    true
}

/// A container that has waited out its crashes, and of which the next record is not made yet: it waits
/// for the same reason still, unless there is another by now.
pub fn backed_off(view: &View<'_>, wanted: &Wanted, container: &WantedContainer, plan: &mut Plan) {
    let next = next(view, container);
    let last = view.observed().newest(&container.name);
    let ended = last.and_then(|last| last.finished_at);
    if let Some((due, ended)) = next.not_before.zip(ended)
        && ended < due
    {
        tell(view, wanted, container, (&next, due), plan);
    }
}

fn tell(
    view: &View<'_>,
    wanted: &Wanted,
    container: &WantedContainer,
    (next, due): (&Next, Timestamp),
    plan: &mut Plan,
) {
    let message = format!(
        "back-off {} restarting failed container={} pod={}_{}({})",
        go_duration(next.delay),
        container.name,
        wanted.name,
        wanted.namespace,
        view.pod.uid
    );
    plan.note(
        &container.name,
        reason::CRASH_LOOP_BACK_OFF,
        message,
        Some(due),
    );
}

/// Whole seconds as upstream prints them: 10s, 2m40s.
fn go_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
