//! What the restart policy says of an exit, and when a container starts again: crash-loop back-off.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::reason;
use polylet_model::restart::{self, ContainerExit, CrashLoopBackOff, RestartDecision};

use crate::core::plan::Plan;
use crate::core::pod_spec::{ContainerSpecView, PodSpecView};
use crate::core::resize;
use crate::core::runtime_state::ContainerState;
use crate::core::view::View;

/// The runtime reads the same clock a moment earlier or later.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// Exit code of a container that was killed with SIGKILL.
pub(super) const EXIT_CODE_KILLED: i32 = 137;

/// Whether an exited container was stopped to be replaced. The exit may be reported before the stop
/// call returns.
pub fn was_killed_for_restart(view: &View<'_>, id: &str) -> bool {
    let stop = view.pod.lifecycle.stops.get(id);
    stop.is_some_and(|stop| stop.restart)
}

/// Whether the restart policy restarts a container after an exit with this code.
pub fn after_exit(pod: &PodSpecView, spec: &ContainerSpecView, exit_code: i32) -> bool {
    // `RestartAllContainers` is handled before; here it restarts at least this container.
    restart::after_exit(spec.kind, &spec.spec, pod.restart_policy, exit_code)
        != RestartDecision::NoRestart
}

/// Whether the restart policy restarts a container that is killed for a failed probe or together
/// with its sandbox. Its rules do not count, as there is no exit code yet.
pub fn after_kill(pod: &PodSpecView, spec: &ContainerSpecView) -> bool {
    restart::after_kill(spec.kind, &spec.spec, pod.restart_policy) != RestartDecision::NoRestart
}

/// The next start of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextAttempt {
    /// The restart count.
    pub attempt: u32,
    /// Number of crashes in a row before it.
    pub backoff_step: u32,
    /// No start before this time.
    pub not_before: Option<Timestamp>,
    /// The back-off, counted from the exit.
    pub delay: Duration,
}

/// The next start of a container, derived from its last exit alone.
pub fn next_attempt(view: &View<'_>, spec: &ContainerSpecView) -> NextAttempt {
    let min_attempts = &view.pod.min_container_attempts;
    let min_attempt = min_attempts.get(&spec.name).copied().unwrap_or(0);
    let Some(last) = view.observed().newest_container(&spec.name) else {
        return first_attempt(view, spec, min_attempt);
    };
    let attempt = min_attempt.max(last.attempt.saturating_add(1));
    let exited = last.state == ContainerState::Exited && !last.aborted;
    // An exit in the future predates a backward clock step: no back-off.
    let is_past = |at: &Timestamp| at.duration_since(view.now) <= CLOCK_TOLERANCE;
    let Some(finished_at) = last.finished_at.filter(|at| exited && is_past(at)) else {
        return NextAttempt {
            attempt,
            backoff_step: last.backoff_step,
            not_before: None,
            delay: Duration::ZERO,
        };
    };
    let exit = ContainerExit {
        attempt: last.attempt,
        step: Some(last.backoff_step),
        started_at: last.started_at,
        finished_at,
        spec_changed: last.hash != spec.hash || !resize::is_up_to_date(view, spec, last),
    };
    let back_off = CrashLoopBackOff::with_cap(view.node.max_restart_backoff);
    let next = if was_killed_for_restart(view, &last.id) {
        let previous_exit = view.pod.previous_exits.get(&last.id).copied();
        back_off.after_kill(&exit, previous_exit)
    } else {
        back_off.after(&exit)
    };
    NextAttempt {
        attempt,
        backoff_step: next.step,
        not_before: Some(next.not_before),
        delay: next.delay,
    }
}

/// The next start of a container without a record: its first one, or one after the restart of all
/// containers.
fn first_attempt(view: &View<'_>, spec: &ContainerSpecView, min_attempt: u32) -> NextAttempt {
    let pending = &view.pod.lifecycle.pending_restarts;
    // A longer wait is left over from a backward clock step.
    let max_backoff = view.node.max_restart_backoff;
    let max_wait = SignedDuration::try_from(max_backoff).unwrap_or(SignedDuration::MAX);
    let own = pending.get(&spec.name);
    let backoff_step = own.map_or(0, |restart| restart.backoff_step);
    NextAttempt {
        attempt: own.map_or(min_attempt, |restart| restart.attempt.max(min_attempt)),
        backoff_step,
        not_before: pending
            .values()
            .filter_map(|restart| restart.not_before)
            .filter(|due| due.duration_since(view.now) <= max_wait)
            .max(),
        delay: CrashLoopBackOff::with_cap(max_backoff).delay(backoff_step.saturating_sub(1)),
    }
}

/// The restart count of a container without a record in the runtime: at least one above that of its
/// log files, in case the runtime has lost its records.
pub fn unused_attempt(planned: u32, logs: impl IntoIterator<Item = u32>) -> u32 {
    let after = logs.into_iter().max().map_or(0, |n| n.saturating_add(1));
    planned.max(after)
}

/// Whether the container is in crash-loop back-off, which is then its waiting reason.
pub fn wait_for_backoff(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    next: &NextAttempt,
    plan: &mut Plan,
) -> bool {
    let Some(due) = next.not_before.filter(|due| *due > view.now) else {
        return false;
    };
    set_crash_loop_back_off(view, pod, spec, (next, due), plan);
    plan.wake_by(due);
    true
}

/// Keeps `CrashLoopBackOff` as the waiting reason after the back-off until the next container is
/// created, unless there is another reason.
pub fn report_backoff_until_created(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    plan: &mut Plan,
) {
    let next = next_attempt(view, spec);
    let last = view.observed().newest_container(&spec.name);
    let finished_at = last.and_then(|last| last.finished_at);
    if let Some((due, finished_at)) = next.not_before.zip(finished_at)
        && finished_at < due
    {
        set_crash_loop_back_off(view, pod, spec, (&next, due), plan);
    }
}

fn set_crash_loop_back_off(
    view: &View<'_>,
    pod: &PodSpecView,
    spec: &ContainerSpecView,
    (next, due): (&NextAttempt, Timestamp),
    plan: &mut Plan,
) {
    let message = format!(
        "back-off {} restarting failed container={} pod={}_{}({})",
        go_duration(next.delay),
        spec.name,
        pod.name,
        pod.namespace,
        view.pod.uid
    );
    let reason = reason::CRASH_LOOP_BACK_OFF;
    plan.set_waiting(&spec.name, reason, message, Some(due));
}

/// Whole seconds in Go's format: 10s, 2m40s.
fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
