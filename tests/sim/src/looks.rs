//! Looks at the runtime: pleg's lists and statuses, and the coordinator's questions to pleg.

use polylet_pleg::core::{Fresh, Known, Listing, PodView, Seen, missing};
use polylet_sync_coordinator::core::learn::Outcome;
use polylet_sync_coordinator::core::step::StepKey;
use polylet_sync_coordinator::run::Input;
use polylet_wire::pleg::v1::PodState;
use tokio::sync::oneshot;

use crate::calls::{Answered, Work};
use crate::node::{coordinator, pleg};
use crate::world::World;

impl World {
    /// pleg lists.
    pub(crate) fn list(&mut self) -> Result<Listing, String> {
        if !self.runtime.up || (!self.calm && self.rng.percent(3)) {
            return Err("the runtime is away".to_owned());
        }
        Ok(self.runtime.listing())
    }

    /// pleg looks at a pod.
    pub(crate) fn look(
        &mut self,
        uid: &str,
        view: Option<PodView>,
        known: &Known,
    ) -> Result<Seen, String> {
        let mut view = match view {
            Some(view) => view,
            None => self.list()?.remove(uid).unwrap_or_default(),
        };
        if !self.runtime.up {
            return Err("the runtime is away".to_owned());
        }
        let wanted = missing(&view, known);
        let mut fresh = Fresh::default();
        let hangs = |world: &mut World| !world.calm && world.rng.percent(2);
        for id in wanted.sandboxes {
            let answer = self.runtime.sandbox_status(&id);
            let hung = hangs(self);
            match answer {
                Some(_) if hung => drop(fresh.sandboxes.insert(id, Err("timed out".to_owned()))),
                Some(status) => drop(fresh.sandboxes.insert(id, Ok(status))),
                None => drop(view.sandboxes.remove(&id)),
            }
        }
        for id in wanted.containers {
            let answer = self.runtime.container_status(&id);
            let hung = hangs(self);
            match answer {
                Some(_) if hung => drop(fresh.containers.insert(id, Err("timed out".to_owned()))),
                Some(status) => drop(fresh.containers.insert(id, Ok(status))),
                None => drop(view.containers.remove(&id)),
            }
        }
        Ok(Seen { view, fresh })
    }

    /// The coordinator asks pleg about a pod. Says what is still to be done, and whether anything moved.
    pub(crate) fn refresh(
        &mut self,
        uid: String,
        acts: u64,
        stopped: Option<(StepKey, Outcome)>,
        answer: Option<Answered>,
    ) -> (Option<Work>, bool) {
        let waits = |answer| Work::Refresh {
            uid: uid.clone(),
            acts,
            stopped: stopped.clone(),
            answer,
        };
        let state: Option<PodState> = match answer {
            None => match pleg::refresh(self, &uid) {
                None if stopped.is_some() => None,
                sent => {
                    let moved = sent.is_some();
                    return (Some(waits(sent)), moved);
                }
            },
            Some(mut answer) => match answer.try_recv() {
                Ok(Ok(said)) => said.state,
                Err(oneshot::error::TryRecvError::Empty) => {
                    return (Some(waits(Some(answer))), false);
                }
                _ if stopped.is_some() => None,
                _ => return (Some(waits(None)), true),
            },
        };
        let input = match stopped {
            Some((key, outcome)) => Input::StepDone {
                uid,
                key,
                outcome: Box::new(outcome),
                state,
            },
            None => Input::Refreshed { uid, acts, state },
        };
        coordinator::take(self, vec![input]);
        (None, true)
    }
}
