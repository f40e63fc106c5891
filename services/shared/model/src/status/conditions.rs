//! The conditions of a pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;

use super::containers::{self, Lists};
use super::{Container, StatusFacts, needs_sandbox, restarting, second, state};
use crate::constants::{condition, condition_reason as why, phase};
use crate::pod::{ContainerKind, is_sidecar};
use crate::probe::ProbeKind;

/// Types that follow from facts; all others are someone else's and stay.
const OURS: [&str; 9] = [
    condition::POD_READY_TO_START_CONTAINERS,
    condition::INITIALIZED,
    condition::READY,
    condition::CONTAINERS_READY,
    condition::POD_SCHEDULED,
    condition::DISRUPTION_TARGET,
    condition::POD_RESIZE_PENDING,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::ALL_CONTAINERS_RESTARTING,
];

/// What a condition says, before it has its time.
pub(super) struct Saying {
    pub(super) holds: bool,
    pub(super) reason: Option<&'static str>,
    pub(super) message: Option<String>,
}

impl Saying {
    const YES: Self = Self {
        holds: true,
        reason: None,
        message: None,
    };

    pub(super) fn no(reason: &'static str, message: Option<String>) -> Self {
        Self {
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

/// Those that somebody else wrote.
pub(super) fn of_others(facts: &StatusFacts<'_>) -> Vec<PodCondition> {
    let before = facts
        .previous
        .and_then(|previous| previous.conditions.as_ref());
    let all = before.into_iter().flatten();
    all.filter(|c| !OURS.contains(&c.type_.as_str()))
        .cloned()
        .collect()
}

pub(super) fn all(facts: &StatusFacts<'_>, lists: &Lists, phase: &str) -> Vec<PodCondition> {
    let mut out = of_others(facts);
    out.extend(resize_pending(facts));
    out.extend(resizing(facts));
    if let Some(disrupted) = disruption(facts) {
        out.push(disrupted);
    }
    let times = Times::new(facts);
    let sandbox = sandbox_ready(facts);
    let sandbox_at = times.sandbox(sandbox.holds);
    out.push(finish(
        facts,
        condition::POD_READY_TO_START_CONTAINERS,
        sandbox,
        sandbox_at,
    ));
    let initialized = initialized(facts, lists, phase);
    let initialized_at = times.initialized(initialized.holds);
    out.push(finish(
        facts,
        condition::INITIALIZED,
        initialized,
        initialized_at,
    ));
    let containers = containers_ready(facts, lists, phase);
    let at = times.ready(containers.holds);
    let ready = match gates(facts, &out) {
        Some(closed) if containers.holds => closed,
        _ => Saying {
            message: containers.message.clone(),
            ..containers
        },
    };
    out.push(finish(facts, condition::READY, ready, at));
    out.push(finish(facts, condition::CONTAINERS_READY, containers, at));
    if let Some(saying) = restarting::saying(facts, phase) {
        let at = times.last_end().or(times.seen);
        let type_ = condition::ALL_CONTAINERS_RESTARTING;
        out.push(PodCondition {
            // As upstream, alone among all.
            observed_generation: None,
            ..finish(facts, type_, saying, at)
        });
    }
    out.push(finish(
        facts,
        condition::POD_SCHEDULED,
        Saying::YES,
        times.seen,
    ));
    out
}

/// Gives a saying its time: the one it had while it does not change, and else
/// that of the fact behind it.
fn finish(
    facts: &StatusFacts<'_>,
    type_: &str,
    saying: Saying,
    fact: Option<Timestamp>,
) -> PodCondition {
    let status = if saying.holds { "True" } else { "False" };
    let before = facts.previous.and_then(|p| p.conditions.as_ref());
    let before = before.into_iter().flatten().find(|c| c.type_ == type_);
    let known = before.and_then(|c| c.last_transition_time.clone());
    let fact = fact.map(second);
    let at = match before {
        Some(before) if before.status == status => known.or(fact),
        // A change never lies before the one it follows.
        Some(_) => fact.max(known),
        None => fact,
    };
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: saying.reason.map(str::to_owned),
        message: saying.message,
        last_transition_time: at,
        last_probe_time: None,
        observed_generation: facts.manifest.generation(),
    }
}

fn resize_pending(facts: &StatusFacts<'_>) -> Option<PodCondition> {
    let pending = facts.resize?;
    let saying = Saying {
        message: super::given(&pending.message),
        ..Saying::YES
    };
    let type_ = condition::POD_RESIZE_PENDING;
    Some(PodCondition {
        reason: Some(pending.reason.clone()),
        last_probe_time: pending.since.map(second),
        ..finish(facts, type_, saying, pending.since)
    })
}

fn resizing(facts: &StatusFacts<'_>) -> Option<PodCondition> {
    let resizing = facts.resizing?;
    let message = super::given(&resizing.error);
    let reason = message.as_ref().map(|_| why::ERROR.to_owned());
    let saying = Saying {
        message,
        ..Saying::YES
    };
    let type_ = condition::POD_RESIZE_IN_PROGRESS;
    Some(PodCondition {
        reason,
        observed_generation: Some(resizing.generation).filter(|known| *known > 0),
        last_probe_time: resizing.since.map(second),
        ..finish(facts, type_, saying, resizing.since)
    })
}

fn disruption(facts: &StatusFacts<'_>) -> Option<PodCondition> {
    let known = facts
        .previous
        .and_then(|p| p.conditions.as_ref())
        .into_iter()
        .flatten();
    if let Some(known) = known
        .into_iter()
        .find(|c| c.type_ == condition::DISRUPTION_TARGET)
    {
        return Some(known.clone());
    }
    let terminal = facts
        .terminal
        .filter(|terminal| terminal.disruption_target)?;
    // Who makes room is told so in other words than its status.
    let message = if terminal.reason == crate::constants::reason::PREEMPTING {
        Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned())
    } else {
        super::given(&terminal.message)
    };
    let saying = Saying {
        holds: true,
        reason: Some(why::TERMINATION_BY_KUBELET),
        message,
    };
    Some(finish(
        facts,
        condition::DISRUPTION_TARGET,
        saying,
        terminal.decided_at,
    ))
}

fn sandbox_ready(facts: &StatusFacts<'_>) -> Saying {
    Saying {
        holds: !needs_sandbox(facts.manifest, facts.sandboxes),
        reason: None,
        message: None,
    }
}

fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn message(unknown: &[&str], known: &[&str], what: &str) -> Option<String> {
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: {}", list(unknown)));
    }
    if !known.is_empty() {
        parts.push(format!("containers with {what} status: {}", list(known)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn initialized(facts: &StatusFacts<'_>, lists: &Lists, phase: &str) -> Saying {
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for init in facts.manifest.init_containers() {
        match lists.get(&init.name) {
            None => unknown.push(init.name.as_str()),
            Some(status) => {
                let done = if is_sidecar(init) {
                    status.started == Some(true)
                } else {
                    status.ready
                };
                if !done {
                    incomplete.push(init.name.as_str());
                }
            }
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return Saying {
            reason: Some(why::POD_COMPLETED),
            ..Saying::YES
        };
    }
    if lists.regular.iter().any(|status| {
        let ended = state::ended(status).is_some() && !super::end::is_sealed(status);
        state::is_running(status) || ended
    }) {
        return Saying::YES;
    }
    match message(&unknown, &incomplete, "incomplete") {
        None => Saying::YES,
        message => Saying::no(why::CONTAINERS_NOT_INITIALIZED, message),
    }
}

fn containers_ready(facts: &StatusFacts<'_>, lists: &Lists, phase: &str) -> Saying {
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    let sidecars = facts
        .manifest
        .init_containers()
        .iter()
        .filter(|init| is_sidecar(init));
    for container in sidecars.chain(facts.manifest.containers()) {
        match lists.get(&container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return Saying::no(why::POD_COMPLETED, None);
    }
    if phase == phase::FAILED {
        return Saying::no(why::POD_FAILED, None);
    }
    match message(&unknown, &unready, "unready") {
        None => Saying::YES,
        message => Saying::no(why::CONTAINERS_NOT_READY, message),
    }
}

/// What the pod's readiness gates say against it.
fn gates(facts: &StatusFacts<'_>, conditions: &[PodCondition]) -> Option<Saying> {
    let mut closed = Vec::new();
    for gate in facts.manifest.spec().readiness_gates.iter().flatten() {
        let name = &gate.condition_type;
        match conditions.iter().find(|c| c.type_ == *name) {
            None => closed.push(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
            Some(c) if c.status != "True" => {
                closed.push(format!(
                    "the status of pod readiness gate {name:?} is not \"True\", but {}",
                    c.status
                ));
            }
            Some(_) => {}
        }
    }
    (!closed.is_empty())
        .then(|| Saying::no(why::READINESS_GATES_NOT_READY, Some(closed.join(", "))))
}

/// The times of the facts behind conditions.
struct Times<'a> {
    facts: &'a StatusFacts<'a>,
    /// When the node first saw the pod.
    seen: Option<Timestamp>,
}

impl<'a> Times<'a> {
    fn new(facts: &'a StatusFacts<'a>) -> Self {
        let manifest = facts.manifest;
        // The manifest's own words first: they are there from the first sight on.
        let seen = manifest
            .seen_at()
            .or_else(|| manifest.creation_timestamp())
            .or(facts.acknowledged_at);
        Self { facts, seen }
    }

    fn newest(&self, name: &str) -> Option<&'a Container> {
        containers::named(self.facts, name).next()
    }

    fn verdict(&self, container: &Container, kind: ProbeKind) -> Option<Timestamp> {
        containers::verdict(self.facts, container, kind)?.since
    }

    fn sandbox(&self, holds: bool) -> Option<Timestamp> {
        let made = self
            .facts
            .sandboxes
            .first()
            .and_then(|sandbox| sandbox.created_at);
        match (holds, made) {
            (true, made) => made.or(self.seen),
            (false, None) => self.seen,
            // It stood and stands no more: with it went its containers.
            (false, made) => made.max(self.last_end()),
        }
    }

    fn last_end(&self) -> Option<Timestamp> {
        self.facts
            .containers
            .iter()
            .filter_map(|container| container.finished_at)
            .max()
    }

    fn initialized(&self, holds: bool) -> Option<Timestamp> {
        let done = self
            .facts
            .manifest
            .init_containers()
            .iter()
            .filter_map(|init| {
                let container = self.newest(&init.name)?;
                if is_sidecar(init) {
                    self.verdict(container, ProbeKind::Startup)
                        .max(container.started_at)
                } else {
                    container.finished_at
                }
            });
        if holds {
            done.max().or(self.seen)
        } else {
            self.seen
        }
    }

    fn ready(&self, holds: bool) -> Option<Timestamp> {
        let decided = self.facts.terminal.and_then(|terminal| terminal.decided_at);
        let all = self.facts.manifest.all_containers();
        let counted =
            all.filter(|(kind, _)| matches!(kind, ContainerKind::Regular | ContainerKind::Sidecar));
        let changes = counted.filter_map(|(_, spec)| {
            let container = self.newest(&spec.name)?;
            let startup = self.verdict(container, ProbeKind::Startup);
            let readiness = self.verdict(container, ProbeKind::Readiness);
            if holds {
                container.started_at.max(startup).max(readiness)
            } else {
                // Not ready since it ended, or since its probe says so.
                container
                    .finished_at
                    .or_else(|| self.failing(container))
                    .or(container.started_at)
            }
        });
        let changed = changes.max();
        if holds {
            changed.or(self.seen)
        } else {
            changed.max(decided).or(self.seen)
        }
    }

    fn failing(&self, container: &Container) -> Option<Timestamp> {
        let verdicts = self.facts.verdicts.iter();
        verdicts
            .filter(|v| v.container_id == container.id && !v.success)
            .filter_map(|v| v.since)
            .max()
    }
}
