//! A desk in play: a world of pods, what the desk asks of it, and what it has told.

use std::collections::BTreeMap;

use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{Container, ContainerPhase};

use super::super::*;
use crate::core::pod::{Fresh, missing};
use crate::core::view::ContainerView;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

/// Pods of one container each: its id and phase.
pub(super) type World = BTreeMap<String, (String, i32)>;

pub(super) fn view_of(uid: &str, world: &World) -> PodView {
    let Some((id, phase)) = world.get(uid) else {
        return PodView::default();
    };
    let listed = ContainerView {
        phase: ContainerPhase::try_from(*phase).unwrap(),
        sandbox_id: String::new(),
        name: "app".to_owned(),
        attempt: 0,
        created_at: 1,
    };
    PodView {
        pod: PodRef {
            uid: uid.to_owned(),
            ..Default::default()
        },
        containers: [(id.clone(), listed)].into(),
        ..Default::default()
    }
}

pub(super) fn listing_of(world: &World) -> Listing {
    world
        .keys()
        .map(|uid| (uid.clone(), view_of(uid, world)))
        .collect()
}

pub(super) fn seen_of(uid: &str, view: Option<PodView>, known: &Known, world: &World) -> Seen {
    let mut view = view.unwrap_or_else(|| view_of(uid, world));
    let mut fresh = Fresh::default();
    for id in missing(&view, known).containers {
        match world.get(uid) {
            Some((now, phase)) if *now == id => {
                let container = Container {
                    id: id.clone(),
                    phase: *phase,
                    ..Default::default()
                };
                fresh.containers.insert(id, Ok(container));
            }
            _ => drop(view.containers.remove(&id)),
        }
    }
    Seen { view, fresh }
}

/// A desk with what it has asked for and what it has told.
pub(super) struct Play {
    pub(super) desk: Desk,
    pub(super) now: i64,
    pub(super) asked: Vec<Step>,
    /// What was there when each of those was asked.
    pub(super) then: Vec<World>,
    pub(super) world: World,
    pub(super) told: BTreeMap<String, PodState>,
    pub(super) answers: Vec<(String, Vec<u64>, Result<(), String>)>,
    pub(super) adopted: usize,
    pub(super) whole: bool,
}

impl Play {
    pub(super) fn new() -> Self {
        let mut play = Play {
            desk: Desk::new(at(0)),
            now: 0,
            asked: Vec::new(),
            then: Vec::new(),
            world: World::new(),
            told: BTreeMap::new(),
            answers: Vec::new(),
            adopted: 0,
            whole: false,
        };
        play.pump();
        play
    }

    pub(super) fn pump(&mut self) {
        for step in self.desk.steps(at(self.now)) {
            match step {
                Step::Publish { uid, state, .. } => match state {
                    Some(state) => drop(self.told.insert(uid, *state)),
                    None => drop(self.told.remove(&uid)),
                },
                Step::Answer {
                    uid,
                    tokens,
                    result,
                } => self.answers.push((uid, tokens, result)),
                Step::Adopt { .. } => self.adopted += 1,
                Step::Whole => self.whole = true,
                ask => {
                    self.asked.push(ask);
                    self.then.push(self.world.clone());
                }
            }
        }
    }

    // An answer may be as old as its question.
    pub(super) fn end_early(&mut self, which: usize) {
        let world = self.then[which].clone();
        self.end(which, &world);
    }

    pub(super) fn end(&mut self, which: usize, world: &World) {
        self.then.remove(which);
        match self.asked.remove(which) {
            Step::Relist { turn } => self
                .desk
                .relisted(turn, Ok(listing_of(world)), at(self.now)),
            Step::Look { uid, view, known } => {
                let seen = seen_of(&uid, view, &known, world);
                self.desk.looked(&uid, Ok(seen), at(self.now));
            }
            other => panic!("nobody answers {other:?}"),
        }
        self.pump();
    }

    pub(super) fn fail(&mut self, which: usize) {
        let away = "away".to_owned();
        self.then.remove(which);
        match self.asked.remove(which) {
            Step::Relist { turn } => self.desk.relisted(turn, Err(away), at(self.now)),
            Step::Look { uid, .. } => self.desk.looked(&uid, Err(away), at(self.now)),
            other => panic!("nobody answers {other:?}"),
        }
        self.pump();
    }

    pub(super) fn settle(&mut self, world: &World) {
        while !self.asked.is_empty() {
            self.end(0, world);
        }
    }

    pub(super) fn pass(&mut self, millis: i64, world: &World) {
        let until = self.now + millis;
        while let Some(due) = self.desk.due().filter(|due| *due <= at(until)) {
            self.now = self.now.max(due.as_millisecond());
            self.pump();
            self.settle(world);
        }
        self.now = until;
    }

    pub(super) fn tells(&self) -> World {
        let one = |state: &PodState| (state.containers[0].id.clone(), state.containers[0].phase);
        self.told
            .iter()
            .map(|(uid, state)| (uid.clone(), one(state)))
            .collect()
    }
}

pub(super) fn world(pods: &[(&str, &str, i32)]) -> World {
    pods.iter()
        .map(|(uid, id, phase)| ((*uid).to_owned(), ((*id).to_owned(), *phase)))
        .collect()
}

pub(super) fn hint(uid: &str, id: &str, kind: HintKind, millis: i64) -> Hint {
    Hint {
        uid: (!uid.is_empty()).then(|| uid.to_owned()),
        id: id.to_owned(),
        kind,
        at: Some(at(millis)),
    }
}

pub(super) fn looks(play: &Play) -> Vec<&str> {
    let uid = |step: &'_ Step| match step {
        Step::Look { uid, .. } => Some(uid.clone()),
        _ => None,
    };
    play.asked
        .iter()
        .filter(|s| uid(s).is_some())
        .map(|s| match s {
            Step::Look { uid, .. } => uid.as_str(),
            _ => "",
        })
        .collect()
}
