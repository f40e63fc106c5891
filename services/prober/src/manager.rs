//! The probes of all pods and their results, without a clock, wire types or I/O: the event loop
//! drives it, and so does the simulation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::ids::PodUid;

use crate::core::engine::Engine;
pub use crate::core::types::{ObservedChange, PodChange, ProbeAttempt, ProbeId, Results};
use crate::core::types::{OutcomeChange, PodSource, ProbeOutput, ProbeResult};

/// Decides which probes to run, and keeps their results.
pub struct ProbeManager {
    engine: Engine,
    /// The source of each pod: only that one can remove it.
    sources: BTreeMap<PodUid, PodSource>,
    results: Results,
    unsaved: bool,
}

impl ProbeManager {
    /// Starts with the results of a previous process instance.
    pub fn new(results: Results) -> Self {
        let outcomes = results
            .iter()
            .map(|(id, result)| (id.clone(), result.outcome))
            .collect();
        ProbeManager {
            engine: Engine::new(outcomes),
            sources: BTreeMap::new(),
            results,
            unsaved: false,
        }
    }

    /// The current results. They are published once they are saved.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Takes a change of the desired pods.
    pub fn handle_pod(&mut self, change: PodChange, now: Timestamp) {
        let PodChange {
            source,
            uid,
            probes,
        } = change;
        if probes.is_some() {
            self.sources.insert(uid.clone(), source);
        } else if self.sources.get(&uid) == Some(&source) {
            self.sources.remove(&uid);
        } else {
            return;
        }
        self.engine.set_pod(&uid, probes, now);
    }

    /// Takes a change of the pods in the runtime. True when this completes the initial sync: the
    /// results can be published then. Results need no more than that their containers still exist, so
    /// an unavailable source of pods does not delay them.
    pub fn handle_observed(&mut self, change: ObservedChange, now: Timestamp) -> bool {
        let had_synced = self.engine.has_synced();
        let dropped = match change {
            ObservedChange::Upsert(uid, observed) => {
                self.engine.set_observed(&uid, Some(observed), now)
            }
            ObservedChange::Remove(uid) => self.engine.set_observed(&uid, None, now),
            ObservedChange::Synced => self.engine.on_synced(),
        };
        for id in &dropped {
            self.results.remove(id);
            self.unsaved = true;
        }
        !had_synced && self.engine.has_synced()
    }

    /// When the next attempt is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.engine.next_due()
    }

    /// Starts the attempts that are due.
    pub fn start_due(&mut self, now: Timestamp) -> Vec<ProbeAttempt> {
        self.engine.start_due(now)
    }

    /// Completes an attempt with success, with a failure message, or with `None` when the probe itself
    /// failed. For the simulation.
    pub fn complete_simulated(
        &mut self,
        attempt: &ProbeAttempt,
        result: Option<Result<(), String>>,
        now: Timestamp,
    ) {
        let output = match result {
            Some(Ok(())) => ProbeOutput::Success,
            Some(Err(message)) => ProbeOutput::Failure(message),
            None => ProbeOutput::Unknown("no answer".to_owned()),
        };
        self.complete(attempt, output, now, |_| (String::new(), Some(now)));
    }

    /// Completes an attempt. When it changes the outcome, `cause` returns the trace and the time of
    /// the change.
    pub(crate) fn complete(
        &mut self,
        attempt: &ProbeAttempt,
        output: ProbeOutput,
        now: Timestamp,
        cause: impl FnOnce(&OutcomeChange) -> (String, Option<Timestamp>),
    ) {
        let id = &attempt.id;
        let Some(change) = self.engine.complete(id, attempt.serial, output, now) else {
            return;
        };
        let (traceparent, since) = cause(&change);
        let result = ProbeResult {
            outcome: change.outcome,
            run_length: change.run_length,
            message: change.message,
            since,
            traceparent,
        };
        self.results.insert(id.clone(), result);
        self.unsaved = true;
    }

    /// The results, if they have changed since the last call: to be saved, and published after that.
    pub fn take_unsaved(&mut self) -> Option<Results> {
        std::mem::take(&mut self.unsaved).then(|| self.results.clone())
    }
}
