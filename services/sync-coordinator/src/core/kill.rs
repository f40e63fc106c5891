//! The stop of one container: its preStop hook, its turn, and the call that stops it, all within
//! one grace. The grace counts from the stop's beginning, also over a restart of this process; a
//! shorter one that comes later counts from when it came, and shortens what is under way.

use jiff::{SignedDuration, Timestamp};
use polylet_model::hook::Hook;

use super::hooks::{self, Stop};
use super::observed::SeenContainer;
use super::plan::Plan;
use super::step::{Step, StepKey};
use super::view::{Flight, View};

/// The seconds that a container always gets between being asked and being killed.
pub const LEAST_GRACE: u32 = 2;

/// A step that would end so much later than it may is begun anew.
const SLACK: SignedDuration = SignedDuration::from_secs(1);

/// How a container is to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Seconds for all of it.
    pub grace: u32,
    /// So that it starts afresh.
    pub again: bool,
    /// Others have to be gone first, as long as there is time.
    pub in_turn: bool,
}

impl How {
    /// The container goes, and its policy says what follows.
    pub fn end(grace: u32) -> Self {
        How {
            grace,
            again: false,
            in_turn: false,
        }
    }

    /// The container goes so that it starts afresh.
    pub fn afresh(grace: u32) -> Self {
        How {
            again: true,
            ..How::end(grace)
        }
    }
}

/// Stops a container.
pub fn container(view: &View<'_>, seen: &SeenContainer, how: How, plan: &mut Plan) {
    let known = view.pod.lifecycle.stops.get(&seen.id);
    let stop = stop_of(view, known, how);
    if known != Some(&stop) {
        plan.stops.push((seen.id.clone(), stop));
    }
    hooks::give_up_start(view, seen, plan);
    shorten(view, seen, &stop, plan);
    let (id, name) = (seen.id.clone(), seen.name.clone());
    let left = seconds_left(&stop, view.now);
    let hook = pre_stop(view, seen).filter(|_| !stop.hooked && left > 0);
    if let Some(hook) = hook
        && !view.in_flight(&StepKey::StopContainer(id.clone()))
    {
        plan.step(
            view,
            Step::PreStop {
                id,
                container: name,
                hook,
                limit: left,
            },
        );
        return;
    }
    if how.in_turn && left > 0 {
        plan.wait_for(
            format!("container {name} to have its turn to stop"),
            Some(stop.began),
        );
        plan.wake(stop.until);
        return;
    }
    plan.step(
        view,
        Step::StopContainer {
            id,
            container: name,
            grace: left.max(LEAST_GRACE),
        },
    );
}

/// The hook in the manifest, or the one written on a container that no manifest speaks of.
fn pre_stop(view: &View<'_>, seen: &SeenContainer) -> Option<Hook> {
    let wanted = view.pod.wanted.as_ref();
    match wanted.and_then(|wanted| wanted.container(&seen.name)) {
        Some(container) => container.pre_stop.clone(),
        None => seen.pre_stop.as_deref().cloned(),
    }
}

fn stop_of(view: &View<'_>, known: Option<&Stop>, how: How) -> Stop {
    let span = SignedDuration::from_secs(i64::from(how.grace));
    let until = view.now.checked_add(span).unwrap_or(Timestamp::MAX);
    match known {
        None => Stop {
            began: view.now,
            grace: how.grace,
            until,
            hooked: false,
            again: how.again,
        },
        Some(known) => {
            let mut stop = *known;
            // The end of a pod is for good, whatever the stop was begun for.
            stop.again &= how.again;
            if how.grace < known.grace {
                stop.grace = how.grace;
                stop.until = known.until.min(until);
            }
            stop
        }
    }
}

/// Whole seconds, begun ones included: upstream takes off those that have passed. Never more than
/// the grace, should the clock have been set back.
fn seconds_left(stop: &Stop, now: Timestamp) -> u32 {
    let left = stop.until.duration_since(now);
    let begun = i64::from(left.subsec_nanos() > 0);
    u32::try_from(left.as_secs().saturating_add(begun))
        .unwrap_or(0)
        .min(stop.grace)
}

/// Gives up what is under way with more time than there is.
fn shorten(view: &View<'_>, seen: &SeenContainer, stop: &Stop, plan: &mut Plan) {
    let least = SignedDuration::from_secs(i64::from(LEAST_GRACE));
    let stopped = stop
        .until
        .max(view.now.checked_add(least).unwrap_or(view.now));
    for (key, until) in [
        (StepKey::PreStop(seen.id.clone()), stop.until),
        (StepKey::StopContainer(seen.id.clone()), stopped),
    ] {
        let Some(flight) = view.pod.flights.get(&key) else {
            continue;
        };
        if until
            .checked_add(SLACK)
            .is_ok_and(|until| ends(flight) > until)
        {
            plan.give_up.push(key);
        }
    }
}

/// When a step under way comes to its end at the latest.
fn ends(flight: &Flight) -> Timestamp {
    let span = match flight.step {
        Step::PreStop { limit, .. } => limit,
        Step::StopContainer { grace, .. } => grace,
        _ => 0,
    };
    let span = SignedDuration::from_secs(i64::from(span));
    flight.since.checked_add(span).unwrap_or(Timestamp::MAX)
}
