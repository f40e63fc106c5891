//! A pod cache over a simulated runtime: what the runtime has, the calls in flight, and what was
//! published.

use std::collections::BTreeMap;

use polylet_model::status::ContainerPhase;

use super::super::*;
use crate::core::{ContainerStatus, FreshStatuses, ListedContainer, PodIdentity, inspect_targets};

pub(super) const RUNNING: ContainerPhase = ContainerPhase::Running;
pub(super) const EXITED: ContainerPhase = ContainerPhase::Exited;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

pub(super) fn identity(uid: &str) -> PodIdentity {
    PodIdentity {
        uid: uid.into(),
        ..Default::default()
    }
}

/// Pods of one container each: its id and phase.
pub(super) type World = BTreeMap<String, (String, ContainerPhase)>;

fn listed(uid: &str, world: &World) -> ListedPod {
    let Some((id, phase)) = world.get(uid) else {
        return ListedPod::default();
    };
    let container = ListedContainer {
        phase: *phase,
        sandbox_id: String::new(),
        name: "app".to_owned(),
        attempt: 0,
        created_at: None,
    };
    ListedPod {
        pod: identity(uid),
        containers: [(id.clone(), container)].into(),
        ..Default::default()
    }
}

fn listing(world: &World) -> PodListing {
    world
        .keys()
        .map(|uid| (uid.as_str().into(), listed(uid, world)))
        .collect()
}

fn inspect(
    uid: &str,
    entries: Option<ListedPod>,
    cached: &CachedStatuses,
    world: &World,
    exits: &BTreeMap<String, Result<ContainerStatus, String>>,
) -> Inspected {
    let mut entries = entries.unwrap_or_else(|| listed(uid, world));
    let mut fresh = FreshStatuses::default();
    for id in inspect_targets(&entries, cached).containers {
        match world.get(uid) {
            Some((current, phase)) if *current == id => {
                let exit = exits.get(&id).filter(|_| *phase == EXITED);
                let status = exit.cloned();
                let status = status.unwrap_or_else(|| Ok(ContainerStatus::new(&id, *phase)));
                fresh.containers.insert(id, status);
            }
            _ => drop(entries.containers.remove(&id)),
        }
    }
    Inspected {
        listed: entries,
        fresh,
    }
}

pub(super) struct Harness {
    pub(super) cache: PodCache,
    pub(super) now: i64,
    /// Calls in flight.
    pub(super) calls: Vec<Action>,
    /// What the runtime had when each call was made.
    at_call: Vec<World>,
    pub(super) world: World,
    /// The statuses of exited containers that have more than an id, or cannot be read.
    pub(super) exits: BTreeMap<String, Result<ContainerStatus, String>>,
    /// How many statuses of containers were requested.
    pub(super) status_calls: usize,
    pub(super) published: BTreeMap<String, PodStatus>,
    pub(super) responses: Vec<(String, Vec<u64>, Result<(), String>)>,
    pub(super) causes_set: usize,
    pub(super) synced: bool,
}

impl Harness {
    pub(super) fn new() -> Self {
        let mut harness = Harness {
            cache: PodCache::new(at(0)),
            now: 0,
            calls: Vec::new(),
            at_call: Vec::new(),
            world: World::new(),
            exits: BTreeMap::new(),
            status_calls: 0,
            published: BTreeMap::new(),
            responses: Vec::new(),
            causes_set: 0,
            synced: false,
        };
        harness.run_actions();
        harness
    }

    pub(super) fn run_actions(&mut self) {
        for action in self.cache.take_actions(at(self.now)) {
            match action {
                Action::Publish { uid, status, .. } => match status {
                    Some(status) => drop(self.published.insert(uid.into(), *status)),
                    None => drop(self.published.remove(uid.as_str())),
                },
                Action::Respond {
                    uid,
                    tokens,
                    result,
                } => self.responses.push((uid.into(), tokens, result)),
                Action::SetCause { .. } => self.causes_set += 1,
                Action::Synced => self.synced = true,
                call => {
                    self.calls.push(call);
                    self.at_call.push(self.world.clone());
                }
            }
        }
    }

    /// Completes a call with what the runtime had when it was made.
    pub(super) fn complete_with_old_state(&mut self, call: usize) {
        let world = self.at_call[call].clone();
        self.complete(call, &world);
    }

    pub(super) fn complete(&mut self, call: usize, world: &World) {
        self.at_call.remove(call);
        match self.calls.remove(call) {
            Action::Relist { sequence } => {
                self.cache
                    .on_relisted(sequence, Ok(listing(world)), at(self.now));
            }
            Action::Inspect {
                uid,
                listed,
                cached,
            } => {
                let inspected = inspect(uid.as_str(), listed, &cached, world, &self.exits);
                self.status_calls += inspected.fresh.containers.len();
                self.cache.on_inspected(&uid, Ok(inspected), at(self.now));
            }
            other => panic!("{other:?} is not a call"),
        }
        self.run_actions();
    }

    pub(super) fn fail(&mut self, call: usize) {
        let error = "unavailable".to_owned();
        self.at_call.remove(call);
        match self.calls.remove(call) {
            Action::Relist { sequence } => {
                self.cache.on_relisted(sequence, Err(error), at(self.now));
            }
            Action::Inspect { uid, .. } => {
                self.cache.on_inspected(&uid, Err(error), at(self.now));
            }
            other => panic!("{other:?} is not a call"),
        }
        self.run_actions();
    }

    pub(super) fn complete_all(&mut self, world: &World) {
        while !self.calls.is_empty() {
            self.complete(0, world);
        }
    }

    pub(super) fn advance(&mut self, millis: i64, world: &World) {
        let until = self.now + millis;
        while let Some(due) = self.cache.next_due().filter(|due| *due <= at(until)) {
            self.now = self.now.max(due.as_millisecond());
            self.run_actions();
            self.complete_all(world);
        }
        self.now = until;
    }

    pub(super) fn published(&self) -> World {
        self.published
            .iter()
            .map(|(uid, pod)| {
                let container = &pod.containers[0];
                (uid.clone(), (container.id.clone(), container.phase))
            })
            .collect()
    }

    /// The pods being inspected.
    pub(super) fn inspections(&self) -> Vec<&str> {
        self.calls
            .iter()
            .filter_map(|call| match call {
                Action::Inspect { uid, .. } => Some(uid.as_str()),
                _ => None,
            })
            .collect()
    }
}

pub(super) fn world(pods: &[(&str, &str, ContainerPhase)]) -> World {
    pods.iter()
        .map(|(uid, id, phase)| ((*uid).to_owned(), ((*id).to_owned(), *phase)))
        .collect()
}

/// A change of a container whose sandbox has no id.
pub(super) fn change(id: &str, kind: RuntimeEventKind) -> RecordChange {
    RecordChange {
        id: id.to_owned(),
        sandbox_id: String::new(),
        kind,
    }
}

pub(super) fn event(uid: &str, id: &str, kind: RuntimeEventKind, millis: i64) -> RuntimeEvent {
    RuntimeEvent {
        pod: (!uid.is_empty()).then(|| identity(uid)),
        id: id.to_owned(),
        kind,
        at: Some(at(millis)),
        sandbox: None,
    }
}
