//! How what was given reaches what runs: containers that restart for it, containers that are
//! changed as they run, and the pod's cgroup around them.
//!
//! What a container has is written on it when it is made, and in the journal once it was changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::{Allocation, Amounts, ContainerKind};

use crate::core::observed::{Phase, SeenContainer, SeenSandbox};
use crate::core::plan::Plan;
use crate::core::step::{Step, StepKey};
use crate::core::view::View;
use crate::core::wanted::{Wanted, WantedContainer};

/// What of a container changes; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Request and limit of memory.
    Memory,
    /// Request and limit of CPU.
    Cpu,
}

/// One running container that gets something else.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The runtime's id.
    pub id: String,
    /// Its name in the pod.
    pub container: String,
    /// What it has.
    pub from: Amounts,
    /// What it gets.
    pub to: Amounts,
}

/// A change that is given, and not yet what all running containers have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Why the last try failed; empty before it does.
    pub error: String,
    /// What running containers have that get something else, by name.
    pub actual: BTreeMap<String, Amounts>,
    /// The generation of the manifest that asked for it.
    pub generation: i64,
}

impl Change {
    /// The containers whose `resource` changes, those that get less of it first.
    pub fn in_order(changes: &[Change], resource: Resource) -> Vec<&Change> {
        let parts = |of: &Amounts| match resource {
            Resource::Memory => (of.memory_limit, of.memory_request),
            Resource::Cpu => (of.cpu_limit, of.cpu_request),
        };
        // The limit tells, and where it stays the request does.
        let grows = |change: &&Change| parts(&change.to) > parts(&change.from);
        let mut changes: Vec<&Change> = changes
            .iter()
            .filter(|change| parts(&change.from) != parts(&change.to))
            .collect();
        changes.sort_by_key(grows);
        changes
    }
}

/// What a container has.
pub fn had(view: &View<'_>, seen: &SeenContainer) -> Amounts {
    let journal = &view.pod.journal;
    let held = journal.held.get(&seen.id).copied().or(seen.made_with);
    held.unwrap_or_else(|| given(view).map_or_else(Amounts::default, |g| g.amounts(&seen.name)))
}

/// What containers have that nothing written on them tells of, for the journal.
pub(super) fn held(view: &View<'_>) -> BTreeMap<String, Amounts> {
    let known = &view.pod.journal.held;
    let containers = view.observed().containers.iter();
    containers
        .filter(|seen| seen.made_with.is_none() || known.contains_key(&seen.id))
        .map(|seen| (seen.id.clone(), had(view, seen)))
        .collect()
}

fn given<'a>(view: &View<'a>) -> Option<&'a Arc<Allocation>> {
    view.pod.journal.allocated.as_ref()
}

/// What a container gets that has something else; nothing of kinds that are never resized.
fn target(view: &View<'_>, container: &WantedContainer, seen: &SeenContainer) -> Option<Amounts> {
    let resizable = match container.kind {
        ContainerKind::Ephemeral => false,
        ContainerKind::Init => view.node.room.resizes.inits,
        ContainerKind::Regular | ContainerKind::Sidecar => true,
    };
    let to = given(view)?.amounts(&container.name);
    (resizable && had(view, seen) != to).then_some(to)
}

/// Whether a container has what was given.
pub fn is_settled(view: &View<'_>, container: &WantedContainer, seen: &SeenContainer) -> bool {
    target(view, container, seen).is_none()
}

/// Whether a running container restarts to get what was given.
pub fn restarts(view: &View<'_>, container: &WantedContainer, seen: &SeenContainer) -> bool {
    let Some(to) = target(view, container, seen) else {
        return false;
    };
    let from = had(view, seen);
    let memory = (from.memory_limit, from.memory_request) != (to.memory_limit, to.memory_request);
    let cpu = (from.cpu_limit, from.cpu_request) != (to.cpu_limit, to.cpu_request);
    let policies = container.spec.resize_policy.iter().flatten();
    let mut asked = policies.filter(|policy| policy.restart_policy == "RestartContainer");
    asked.any(|policy| match policy.resource_name.as_str() {
        "memory" => memory,
        "cpu" => cpu,
        _ => false,
    })
}

/// Gives running containers and the pod's cgroup what was allocated.
pub fn act(view: &View<'_>, wanted: &Wanted, sandbox: &SeenSandbox, plan: &mut Plan) {
    let restarting = wanted.containers.iter().any(|container| {
        let seen = view.observed().newest_in(&container.name, &sandbox.id);
        seen.is_some_and(|seen| seen.may_run() && restarts(view, container, seen))
    });
    if restarting || is_being_given(view, plan) {
        return;
    }
    let changes = changes(view, wanted, sandbox);
    if !changes.is_empty() || view.pod.journal.in_cgroup.is_some() {
        plan.step(view, Step::Resize { changes });
    }
}

fn changes(view: &View<'_>, wanted: &Wanted, sandbox: &SeenSandbox) -> Vec<Change> {
    let one = |container: &WantedContainer| {
        let seen = view.observed().newest_in(&container.name, &sandbox.id)?;
        let stays = seen.phase == Phase::Running
            && !view.pod.lifecycle.stops.contains_key(&seen.id)
            && !restarts(view, container, seen);
        let to = target(view, container, seen).filter(|_| stays)?;
        Some(Change {
            id: seen.id.clone(),
            container: container.name.clone(),
            from: had(view, seen),
            to,
        })
    };
    wanted.containers.iter().filter_map(one).collect()
}

fn is_being_given(view: &View<'_>, plan: &Plan) -> bool {
    let gives = |step: &Step| matches!(step, Step::Allocate { .. });
    let flight = view.pod.flights.get(&StepKey::Journal);
    flight.is_some_and(|flight| gives(&flight.step)) || plan.steps.iter().any(gives)
}

/// What a container that is to be made has to wait for, so that it gets what was given last and
/// finds room in its pod's cgroup. A change that fails holds nothing back.
pub fn unsettled(view: &View<'_>, plan: &Plan) -> Option<&'static str> {
    if is_being_given(view, plan) {
        return Some("other resources to be written down");
    }
    let resizing = view.in_flight(&StepKey::Resize)
        || plan.steps.iter().any(|step| step.key() == StepKey::Resize);
    resizing.then_some("the pod's cgroup to be resized")
}

/// How far what was given is from being what is.
pub fn progress(view: &View<'_>, wanted: &Wanted) -> Option<Progress> {
    let one = |container: &WantedContainer| {
        let seen = view.observed().newest(&container.name)?;
        let running = seen.phase == Phase::Running;
        target(view, container, seen).filter(|_| running)?;
        Some((container.name.clone(), had(view, seen)))
    };
    let actual: BTreeMap<_, _> = wanted.containers.iter().filter_map(one).collect();
    let journal = &view.pod.journal;
    if actual.is_empty() && journal.in_cgroup.is_none() {
        return None;
    }
    let failure = view.pod.failures.get(&StepKey::Resize);
    Some(Progress {
        error: failure.map_or_else(String::new, |failure| failure.message.clone()),
        actual,
        generation: journal.resize_generation,
    })
}

/// Since when a change is under way: the same while it stays the same one.
pub fn since(known: Option<Timestamp>, plan: &Plan, now: Timestamp) -> Option<Timestamp> {
    plan.resizing.as_ref().map(|_| known.unwrap_or(now))
}
