//! The plan: which steps to start now, when to look again, what to tell.

use jiff::Timestamp;

use super::admission::Verdict;
use super::hooks::Stop;
use super::reset::{self, Reset};
use super::step::{Step, StepKey, describe};
use super::view::View;
use super::{admission, cleanup, containers, init, resize, sandbox, stop, terminal, volumes};

/// What a pod waits for while the runtime does not tell of it.
pub const UNTOLD: &str = "the runtime to tell of this pod";
/// What a pod waits for that this node has ended and that is there for too long.
pub const OVERDUE: &str = "containers that have outlived their time";

/// How far a pod has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing may be said or done yet: known from the runtime alone, and not all have spoken.
    #[default]
    Unjudged,
    /// Being made to run, or running.
    Syncing,
    /// Being stopped.
    Terminating,
    /// Stopped for good; its records are still there.
    Terminated,
    /// Nothing is left on the node.
    Reclaimed,
}

/// What a container waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The container.
    pub container: String,
    /// `v1.ContainerStateWaiting.reason`.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// When the next try is due.
    pub retry_at: Option<Timestamp>,
}

/// What a pod waits for, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// For people.
    pub what: String,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
    /// What went wrong last.
    pub error: String,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps to start, all at once.
    pub steps: Vec<Step>,
    /// Steps under way that are no longer to be waited for: they are begun anew if need be.
    pub give_up: Vec<StepKey>,
    /// Stops that have begun, or that have become shorter, by container id.
    pub stops: Vec<(String, Stop)>,
    /// What follows on records that go so that all containers start anew, by container name.
    pub resets: Vec<(String, Reset)>,
    /// When to look again though nothing was heard.
    pub wake_at: Option<Timestamp>,
    /// How far the pod has come.
    pub phase: Phase,
    /// Containers that wait.
    pub notes: Vec<Note>,
    /// What the pod waits for.
    pub waiting: Vec<Waiting>,
    /// The pod needs a new sandbox.
    pub needs_sandbox: bool,
    /// Some steps wait only for a place among the pods that start.
    pub wants_slot: bool,
    /// The pod can be forgotten.
    pub forget: bool,
    /// The pod waits until others have made room.
    pub wants_room: bool,
    /// What becomes of a change of its resources.
    pub resize: resize::Verdict,
    /// A change of its resources that is on its way to running containers.
    pub resizing: Option<resize::Progress>,
    /// Only the node's labels keep the pod out; newer ones are awaited until then.
    pub unsure_until: Option<Timestamp>,
    /// The runtime is to be asked what it holds of the pod.
    pub asks: bool,
    /// The pod was neither let in nor refused yet.
    pub unadmitted: bool,
    /// Pods that have to end for it, by uid.
    pub victims: Vec<String>,
}

impl Plan {
    /// Looks again at the given moment, or earlier.
    pub fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    /// Waits for something.
    pub fn wait_for(&mut self, what: impl Into<String>, since: Option<Timestamp>) {
        self.waiting.push(Waiting {
            what: what.into(),
            since,
            error: String::new(),
        });
    }

    /// Says why a container waits.
    pub fn note(
        &mut self,
        container: &str,
        reason: &str,
        message: impl Into<String>,
        retry_at: Option<Timestamp>,
    ) {
        if self.notes.iter().any(|n| n.container == container) {
            return;
        }
        let (container, reason) = (container.to_owned(), reason.to_owned());
        self.notes.push(Note {
            container,
            reason,
            message: message.into(),
            retry_at,
        });
    }

    /// Starts a step unless it is under way or must wait after a failure. True
    /// when it is under way, now or already.
    pub fn step(&mut self, view: &View<'_>, step: Step) -> bool {
        let key = step.key();
        if let Some(flight) = view.pod.flights.get(&key) {
            self.wait_for(describe(&flight.step), Some(flight.since));
            return true;
        }
        if let Some(failure) = view.held_back(&key) {
            self.wake(failure.retry_at);
            let since = Some(failure.since);
            self.waiting.push(Waiting {
                what: describe(&step),
                since,
                error: failure.message.clone(),
            });
            return false;
        }
        if step.is_heavy_start() && !view.pod.slot {
            self.wants_slot = true;
            self.wait_for("a place among the pods that start", None);
            return true;
        }
        if !self.steps.iter().any(|known| known.key() == key) {
            self.wait_for(describe(&step), Some(view.now));
            self.steps.push(step);
        }
        true
    }
}

/// What to do now for one pod.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan {
        phase: stage(view),
        ..Plan::default()
    };
    if plan.phase == Phase::Reclaimed {
        cleanup::linger(view, &mut plan);
        return plan;
    }
    plan.unadmitted = plan.phase == Phase::Syncing && !admission::was_admitted(view);
    if plan.phase == Phase::Syncing
        && let Some(wanted) = &view.pod.wanted
    {
        plan.resize = resize::judge(view, wanted);
        plan.resizing = resize::progress(view, wanted);
    }
    if view.pod.observed.is_none() || !view.node.pleg_fresh {
        plan.wait_for("the runtime's state", None);
        return plan;
    }
    if let Err(why) = &view.node.runtime {
        plan.wait_for(format!("the container runtime: {why}"), None);
        return plan;
    }
    if plan.phase == Phase::Syncing && view.observed().is_doubtful() {
        // Neither a missing address nor an exit code is to be believed; pleg asks again by itself.
        plan.waiting.push(Waiting {
            what: UNTOLD.to_owned(),
            since: None,
            error: view.observed().doubt.clone(),
        });
        return plan;
    }
    match plan.phase {
        Phase::Unjudged if view.pod.listed => plan.wait_for("a manifest that can be read", None),
        Phase::Unjudged => plan.wait_for("all sources to be heard", None),
        Phase::Syncing => sync(view, &mut plan),
        Phase::Terminating | Phase::Terminated if view.pod.leaving || view.pod.wanted.is_none() => {
            stop::leave(view, &mut plan);
        }
        Phase::Terminating | Phase::Terminated => stop::end(view, &mut plan),
        Phase::Reclaimed => {}
    }
    plan
}

fn stage(view: &View<'_>) -> Phase {
    let pod = view.pod;
    match &pod.wanted {
        _ if pod.reclaimed_at.is_some() => Phase::Reclaimed,
        _ if pod.leaving => Phase::Terminating,
        // Its source serves it in words that cannot be read: no orphan, and nothing to go by.
        None if pod.listed => Phase::Unjudged,
        None if view.node.all_heard => Phase::Terminating,
        None => Phase::Unjudged,
        Some(_) if pod.journal.torn_down => Phase::Terminated,
        Some(_) if pod.journal.terminal.is_some() => Phase::Terminating,
        Some(_) => Phase::Syncing,
    }
}

/// Brings a pod to run and keeps it so.
fn sync(view: &View<'_>, plan: &mut Plan) {
    let Some(wanted) = view.pod.wanted.clone() else {
        return;
    };
    if let Some(flight) = view.pod.flights.get(&StepKey::Journal)
        && matches!(flight.step, Step::Decide(_))
    {
        plan.wait_for("the journal", Some(flight.since));
        return;
    }
    if let Some(decision) = terminal::decide(view, &wanted, plan) {
        plan.step(view, Step::Decide(decision));
        return;
    }
    if let Some(other) = &view.pod.blocked_by {
        plan.wait_for(format!("pod {other} of the same name to be gone"), None);
        return;
    }
    match admission::judge(view, &wanted) {
        Verdict::Admitted => plan.unadmitted = false,
        Verdict::Refused(decision) => {
            plan.step(view, Step::Decide(decision));
            return;
        }
        Verdict::Unsure { until } => {
            plan.wait_for("the node's object in the cluster", None);
            plan.unsure_until = until;
            if let Some(until) = until {
                plan.wake(until);
            }
            return;
        }
        Verdict::Waits { victims } => {
            plan.wait_for("other pods to make room", None);
            plan.wants_room = true;
            plan.victims = victims;
            return;
        }
    }
    if !view.pod.journalled || view.pod.journal.allocated.is_none() {
        plan.step(view, Step::Journal);
    }
    resize::carry(view, &wanted, plan);
    volumes::declare(view, &wanted, plan);
    if let Some(decision) = volumes::refused(view, &wanted) {
        plan.steps.clear();
        plan.step(view, Step::Decide(decision));
        return;
    }
    let Some(sandbox) = sandbox::stand(view, &wanted, plan) else {
        return;
    };
    if reset::all(view, &wanted, plan) {
        return;
    }
    resize::act(view, &wanted, sandbox, plan);
    let initialized = init::advance(view, &wanted, sandbox, plan);
    containers::ephemeral(view, &wanted, sandbox, plan);
    if initialized == init::Progress::Done {
        containers::mains(view, &wanted, sandbox, plan);
    }
    if let Some(decision) = terminal::finished(view, &wanted, sandbox, initialized) {
        // Whatever was planned for a pod that has come to its end is void.
        plan.steps.retain(|step| step.key() == StepKey::Volumes);
        plan.resizing = None;
        plan.stops.clear();
        plan.step(view, Step::Decide(decision));
        return;
    }
    cleanup::old_records(view, sandbox, plan);
}
