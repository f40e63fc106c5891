//! The kill of one container; upstream's killContainer.
//!
//! preStop hook, wait for dependents and stop call share one grace period. It counts from the first
//! kill request, also across restarts of this process. A later, shorter grace period counts from its
//! own request and shortens steps in flight.

use jiff::{SignedDuration, Timestamp};
use polylet_model::hook::Hook;

use super::lifecycle_hooks;
use crate::core::plan::Plan;
use crate::core::runtime_state::ContainerRecord;
use crate::core::step::{Step, StepKey};
use crate::core::view::{ContainerStop, InFlight, View};

/// The shortest time between stop signal and kill, in seconds.
pub const MIN_GRACE_PERIOD: u32 = 2;

/// A step that may end this much after the deadline is cancelled and started again.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(1);

/// Parameters of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillOptions {
    /// Grace period in seconds for hook and stop together.
    pub grace_period: u32,
    /// The container is replaced afterwards, whatever its exit code.
    pub restart: bool,
    /// The stop waits for dependent containers to exit, within the grace period.
    pub after_dependents: bool,
}

impl KillOptions {
    /// Stops the container; its restart policy decides what follows.
    pub fn stop(grace_period: u32) -> Self {
        KillOptions {
            grace_period,
            restart: false,
            after_dependents: false,
        }
    }

    /// Stops the container to replace it.
    pub fn restart(grace_period: u32) -> Self {
        KillOptions {
            restart: true,
            ..KillOptions::stop(grace_period)
        }
    }
}

/// Kills a container.
pub fn kill_container(
    view: &View<'_>,
    container: &ContainerRecord,
    options: KillOptions,
    plan: &mut Plan,
) {
    let before = view.pod.lifecycle.stops.get(&container.id);
    let stop = updated_stop(view, before, options);
    if before != Some(&stop) {
        plan.stops.push((container.id.clone(), stop));
    }
    lifecycle_hooks::abandon_post_start(view, container, plan);
    abandon_late_steps(view, container, &stop, plan);
    let (id, name) = (container.id.clone(), container.name.clone());
    let left = seconds_left(&stop, view.now);
    let hook = pre_stop(view, container).filter(|_| !stop.pre_stop_done && left > 0);
    if let Some(hook) = hook
        && !view.in_flight(&StepKey::StopContainer(id.clone()))
    {
        plan.start_step(
            view,
            Step::PreStop {
                id,
                container: name,
                hook,
                timeout: left,
            },
        );
        return;
    }
    if options.after_dependents && left > 0 {
        plan.wait_for(
            format!("other containers to exit before container {name} stops"),
            Some(stop.started_at),
        );
        plan.wake_by(stop.deadline);
        return;
    }
    plan.start_step(
        view,
        Step::StopContainer {
            id,
            container: name,
            grace_period: left.max(MIN_GRACE_PERIOD),
        },
    );
}

/// The hook of the spec, or that of the annotation for a container without a spec.
fn pre_stop(view: &View<'_>, container: &ContainerRecord) -> Option<Hook> {
    let pod = view.pod.spec.as_ref();
    match pod.and_then(|pod| pod.container(&container.name)) {
        Some(spec) => spec.pre_stop.clone(),
        None => container.pre_stop.as_deref().cloned(),
    }
}

fn updated_stop(
    view: &View<'_>,
    before: Option<&ContainerStop>,
    options: KillOptions,
) -> ContainerStop {
    let grace_period = SignedDuration::from_secs(i64::from(options.grace_period));
    let deadline = view.now.checked_add(grace_period).unwrap_or(Timestamp::MAX);
    match before {
        None => ContainerStop {
            started_at: view.now,
            grace_period: options.grace_period,
            deadline,
            pre_stop_done: false,
            restart: options.restart,
        },
        Some(before) => {
            let mut stop = *before;
            // The termination of the pod overrides a restart.
            stop.restart &= options.restart;
            if options.grace_period < before.grace_period {
                stop.grace_period = options.grace_period;
                stop.deadline = before.deadline.min(deadline);
            }
            stop
        }
    }
}

/// Seconds until the deadline, rounded up, since upstream subtracts full elapsed seconds. At most the
/// grace period, in case of a backward clock step.
fn seconds_left(stop: &ContainerStop, now: Timestamp) -> u32 {
    let left = stop.deadline.duration_since(now);
    let partial = i64::from(left.subsec_nanos() > 0);
    u32::try_from(left.as_secs().saturating_add(partial))
        .unwrap_or(0)
        .min(stop.grace_period)
}

/// Cancels steps in flight that may end after the deadline.
fn abandon_late_steps(
    view: &View<'_>,
    container: &ContainerRecord,
    stop: &ContainerStop,
    plan: &mut Plan,
) {
    let min_grace_period = SignedDuration::from_secs(i64::from(MIN_GRACE_PERIOD));
    let earliest_kill = view.now.checked_add(min_grace_period);
    let stopped_by = stop.deadline.max(earliest_kill.unwrap_or(view.now));
    for (key, deadline) in [
        (StepKey::PreStop(container.id.clone()), stop.deadline),
        (StepKey::StopContainer(container.id.clone()), stopped_by),
    ] {
        let Some(in_flight) = view.pod.in_flight.get(&key) else {
            continue;
        };
        if deadline
            .checked_add(TOLERANCE)
            .is_ok_and(|deadline| latest_end(in_flight) > deadline)
        {
            plan.abandoned.push(key);
        }
    }
}

/// When a step in flight ends at the latest.
fn latest_end(in_flight: &InFlight) -> Timestamp {
    let timeout = match in_flight.step {
        Step::PreStop { timeout, .. } => timeout,
        Step::StopContainer { grace_period, .. } => grace_period,
        _ => 0,
    };
    let timeout = SignedDuration::from_secs(i64::from(timeout));
    let end = in_flight.started_at.checked_add(timeout);
    end.unwrap_or(Timestamp::MAX)
}
