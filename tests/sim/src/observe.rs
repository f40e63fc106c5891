//! Observation of the runtime: pleg's lists and statuses, and the coordinator's refreshes.

use polylet_pleg::core::{
    CachedStatuses, FreshStatuses, Inspected, ListedPod, PodListing, inspect_targets,
};
use polylet_sync_coordinator::core::step::StepKey;
use polylet_sync_coordinator::core::step::StepOutcome;
use polylet_sync_coordinator::input::Input;
use polylet_wire::pleg::v1::{PodState, RefreshPodRequest};
use tokio::sync::oneshot;

use crate::calls::{PendingResponse, Work};
use crate::node::{coordinator, pleg};
use crate::world::World;

impl World {
    /// pleg lists sandboxes and containers.
    pub(crate) fn list(&mut self) -> Result<PodListing, String> {
        if !self.runtime.up || (!self.quiescing && self.rng.percent(3)) {
            return Err("the runtime is unavailable".to_owned());
        }
        Ok(self.runtime.listing())
    }

    /// pleg inspects a pod.
    pub(crate) fn inspect(
        &mut self,
        uid: &str,
        listed: Option<ListedPod>,
        cached: &CachedStatuses,
    ) -> Result<Inspected, String> {
        let mut listed = match listed {
            Some(listed) => listed,
            None => self.list()?.remove(uid).unwrap_or_default(),
        };
        if !self.runtime.up {
            return Err("the runtime is unavailable".to_owned());
        }
        let targets = inspect_targets(&listed, cached);
        let mut fresh = FreshStatuses::default();
        let times_out = |world: &mut World| !world.quiescing && world.rng.percent(2);
        for id in targets.sandboxes {
            let answer = self.runtime.sandbox_status(&id);
            let timed_out = times_out(self);
            match answer {
                Some(_) if timed_out => {
                    drop(fresh.sandboxes.insert(id, Err("timed out".to_owned())))
                }
                Some(status) => drop(fresh.sandboxes.insert(id, Ok(status))),
                None => drop(listed.sandboxes.remove(&id)),
            }
        }
        for id in targets.containers {
            let answer = self.runtime.container_status(&id);
            let timed_out = times_out(self);
            match answer {
                Some(_) if timed_out => {
                    drop(fresh.containers.insert(id, Err("timed out".to_owned())))
                }
                Some(status) => drop(fresh.containers.insert(id, Ok(status))),
                None => drop(listed.containers.remove(&id)),
            }
        }
        Ok(Inspected { listed, fresh })
    }

    /// The coordinator refreshes a pod. Returns the remaining work, and whether anything happened.
    pub(crate) fn refresh(
        &mut self,
        request: RefreshPodRequest,
        acts: u64,
        step: Option<(StepKey, StepOutcome)>,
        answer: Option<PendingResponse>,
    ) -> (Option<Work>, bool) {
        let waits = |answer| Work::Refresh {
            request: request.clone(),
            acts,
            step: step.clone(),
            answer,
        };
        let state: Option<PodState> = match answer {
            None => match pleg::refresh(self, &request) {
                None if step.is_some() => None,
                sent => {
                    let moved = sent.is_some();
                    return (Some(waits(sent)), moved);
                }
            },
            Some(mut answer) => match answer.try_recv() {
                Ok(Ok(response)) => response.state,
                Err(oneshot::error::TryRecvError::Empty) => {
                    return (Some(waits(Some(answer))), false);
                }
                _ if step.is_some() => None,
                _ => return (Some(waits(None)), true),
            },
        };
        let uid = request.uid;
        let input = match step {
            Some((key, outcome)) => Input::StepFinished {
                // The creation of a sandbox takes only its addresses from the state.
                state: state.filter(|_| key != StepKey::CreateSandbox),
                uid: uid.into(),
                key,
                outcome: Box::new(outcome),
            },
            None => Input::PodRefreshed {
                uid: uid.into(),
                effect_count: acts,
                state,
            },
        };
        coordinator::handle_inputs(self, vec![input]);
        (None, true)
    }
}
