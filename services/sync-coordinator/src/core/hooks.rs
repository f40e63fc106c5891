//! Lifecycle hooks of a pod's containers, and the stops that they are a part of.
//!
//! postStart follows a container's start; what starts after it waits. preStop comes before the
//! stop signal, within the container's grace. Either runs at least once: what is under way when
//! this process dies is run again by its next life, as Kubernetes words it. What has come to its
//! end is not. A stop that has begun is carried through, and its grace goes on from where it began
//! ([`super::kill`]).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use polylet_model::constants::reason;

use super::observed::{Phase, SeenContainer};
use super::plan::Plan;
use super::reset::Reset;
use super::step::{Step, StepKey};
use super::view::View;
use super::wanted::WantedContainer;

/// How long a failed hook is told as such before the back-off that follows from it.
const FRESH: SignedDuration = SignedDuration::from_secs(2);

/// Where a container's postStart hook stands.
#[derive(Clone, Debug, PartialEq)]
pub enum PostStart {
    /// To be run, or under way.
    Due,
    /// It failed, so the container must go.
    Failed {
        /// Upstream's words.
        message: String,
        /// When.
        at: Timestamp,
    },
}

/// The stop of one container: all that it takes happens before one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// When it began.
    pub began: Timestamp,
    /// The shortest grace that was given for it, in seconds.
    pub grace: u32,
    /// When the grace is over.
    pub until: Timestamp,
    /// The preStop hook is over.
    pub hooked: bool,
    /// The container is stopped so that it starts afresh.
    pub again: bool,
}

/// What is under way with a pod's containers beside what the runtime knows, by container id. Kept
/// over a restart of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lifecycle {
    /// Stops that have begun, of containers that the runtime still holds.
    pub stops: BTreeMap<String, Stop>,
    /// postStart hooks that have not come to a good end.
    pub starts: BTreeMap<String, PostStart>,
    /// What follows on records that were removed so that all containers start anew, by name.
    pub resets: BTreeMap<String, Reset>,
}

impl Lifecycle {
    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty() && self.starts.is_empty() && self.resets.is_empty()
    }

    /// Forgets containers that are gone.
    pub fn retain(&mut self, held: impl Fn(&String) -> bool) {
        self.stops.retain(|id, _| held(id));
        self.starts.retain(|id, _| held(id));
    }
}

/// How far a running container's postStart hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// There is none, or it is over.
    Whole,
    /// Due, or under way.
    Under,
    /// It failed.
    Failed,
}

/// Runs a running container's postStart hook where it has not been run.
pub fn after_start(
    view: &View<'_>,
    container: &WantedContainer,
    seen: &SeenContainer,
    plan: &mut Plan,
) -> Started {
    let lifecycle = &view.pod.lifecycle;
    match lifecycle.starts.get(&seen.id) {
        Some(PostStart::Failed { .. }) => Started::Failed,
        Some(PostStart::Due) if !lifecycle.stops.contains_key(&seen.id) => {
            let Some(hook) = container.post_start.clone() else {
                return Started::Whole;
            };
            let (id, container) = (seen.id.clone(), container.name.clone());
            plan.step(
                view,
                Step::PostStart {
                    id,
                    container,
                    hook,
                },
            );
            Started::Under
        }
        _ => Started::Whole,
    }
}

/// Whether a running container's postStart hook holds nothing back any more.
pub fn is_whole(view: &View<'_>, container: &WantedContainer, seen: &SeenContainer) -> bool {
    match view.pod.lifecycle.starts.get(&seen.id) {
        Some(PostStart::Failed { .. }) => false,
        Some(PostStart::Due) => container.post_start.is_none(),
        None => true,
    }
}

/// Gives up the postStart hook of a container that is to end.
pub fn give_up_start(view: &View<'_>, seen: &SeenContainer, plan: &mut Plan) {
    let key = StepKey::PostStart(seen.id.clone());
    if view.in_flight(&key) {
        plan.give_up.push(key);
    }
}

/// Gives up the hooks of a container that has ended.
pub fn give_up(view: &View<'_>, seen: &SeenContainer, plan: &mut Plan) {
    give_up_start(view, seen, plan);
    let key = StepKey::PreStop(seen.id.clone());
    if view.in_flight(&key) {
        plan.give_up.push(key);
    }
}

/// Says for a while that the last start went wrong because of its hook.
pub fn tell_failure(view: &View<'_>, container: &WantedContainer, plan: &mut Plan) {
    let Some(last) = view.observed().newest(&container.name) else {
        return;
    };
    let Some(PostStart::Failed { message, at }) = view.pod.lifecycle.starts.get(&last.id) else {
        return;
    };
    let shown = last.finished_at.unwrap_or(*at).max(*at);
    let until = shown.checked_add(FRESH).unwrap_or(shown);
    if last.phase == Phase::Exited && view.now < until {
        let (word, said) = (reason::POST_START_HOOK_ERROR, message.clone());
        plan.note(&container.name, word, said, Some(until));
        plan.wake(until);
    }
}
