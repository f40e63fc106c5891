//! The coordinator: handles inputs, and reconciles the pods that they concern.
//!
//! It owns the state and requests [`Effects`]; `reconcile` plans for each queued pod and
//! `dispatch` starts the steps of the plan.

mod counts;
mod dispatch;
mod reconcile;

use std::rc::Rc;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_wire::sync::v1::PodSync;

use crate::checkpoint::RestoredState;
use crate::config::Config;
use crate::core::pod_counts::PodTotals;
use crate::effects::Effects;
use crate::input::Input;
use crate::state::State;

type PodSyncStore = polylet_watch::Store<PodUid, PodSync>;

/// Brings the pods on the node to their desired state.
pub struct Coordinator {
    effects: Rc<dyn Effects>,
    store: PodSyncStore,
    config: Config,
    state: State,
    /// When this process instance started.
    started_at: Timestamp,
    draining: bool,
}

impl Coordinator {
    /// A coordinator before any input, in a process instance that started at `now`.
    pub fn new(
        effects: Rc<dyn Effects>,
        store: PodSyncStore,
        config: Config,
        restored: RestoredState,
        now: Timestamp,
    ) -> Self {
        Coordinator {
            effects,
            store,
            state: State::new(&config, restored, now),
            config,
            started_at: now,
            draining: false,
        }
    }

    /// When [`Input::Timer`] is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.state.next_due(self.draining)
    }

    /// Stops starting steps.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Nothing has happened for a while.
    pub fn on_quiet(&mut self) {
        self.state.workers.drop_all_parsed();
    }

    /// Whether the process is draining.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether no step is in flight.
    pub fn is_idle(&self) -> bool {
        let mut workers = self.state.workers.iter();
        workers.all(|worker| worker.pod.in_flight.is_empty())
    }

    /// How many pods sources serve: the API server, and others.
    pub fn desired_pods(&self) -> (usize, usize) {
        let served = self.state.workers.served();
        (served.of_api, served.others)
    }

    /// The numbers of pods by their states, if any may have changed since the last call.
    pub(crate) fn take_changed_totals(&mut self) -> Option<&PodTotals> {
        self.state.counts.take_changed()
    }

    /// How many pods may be starting at the same time now.
    pub(crate) fn start_limit(&self) -> usize {
        self.state.starts.limit()
    }

    /// Handles one input. [`Coordinator::reconcile`] follows after one or several inputs.
    pub fn handle_input(&mut self, input: Input, now: Timestamp) {
        let (effects, state) = (&*self.effects, &mut self.state);
        match input {
            Input::PodConfig(source, update) => {
                let sysctls = &self.config.allowed_unsafe_sysctls;
                state.handle_pod_config(source, update, sysctls, now);
            }
            Input::PodState(update) => {
                if let Some((uid, scope)) = state.handle_pod_state(update, now) {
                    dispatch::refresh_pod(effects, state, &uid, scope);
                }
            }
            Input::Runtime(value) => {
                if state.node.handle_runtime(value) {
                    state.workers.requeue_all();
                }
            }
            Input::Volumes(update) => state.handle_volumes(update, now),
            Input::ProbeStatus(update) => state.handle_probe_status(update),
            Input::Pressure(update) => state.handle_pressure(update, now),
            Input::NodeObject(value) => {
                if state.node.handle_node_object(value) {
                    state.workers.requeue_all();
                }
            }
            Input::StepFinished {
                uid,
                key,
                outcome,
                state: observed,
            } => {
                if dispatch::finish_step(effects, state, &uid, &key, *outcome, observed, now) {
                    self.redeclare_superseded_volumes();
                }
            }
            Input::PodRefreshed {
                uid,
                effect_count,
                state: observed,
            } => dispatch::finish_refresh(effects, state, uid, effect_count, observed, now),
            Input::DesiredCompleted(epoch, result) => {
                if state.volumes.on_completed(epoch, result, now) {
                    self.redeclare_superseded_volumes();
                }
            }
            Input::OrphansFound(pods) => state.orphans.on_found(pods),
            Input::ObjectAvailable { uid, key } => {
                dispatch::retry_step(state, &uid, &key, now);
            }
            Input::ClockStepped(step) => state.handle_clock_step(step),
            Input::Timer => state.handle_timer(now),
            Input::Housekeeping => state.orphans.on_housekeeping(now),
        }
        self.state.update_synced();
    }

    /// Declares all volumes under a new client ID: volume-manager believes another client.
    fn redeclare_superseded_volumes(&mut self) {
        tracing::warn!("stale call from a previous instance; re-declaring all volumes");
        self.state.redeclare_volumes();
    }
}

#[cfg(test)]
mod tests;
