//! The probes of all pods and their results, without a clock, wire types or I/O: the event loop
//! drives it, and so does the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::ids::PodUid;

use crate::core::engine::Engine;
use crate::core::metrics::ProbeMetrics;
pub use crate::core::types::{
    ObservedChange, PodChange, ProbeAttempt, ProbeId, ResultChanges, Results,
};
use crate::core::types::{OutcomeChange, PodSource, ProbeOutput, ProbeResult};

/// Decides which probes to run, and what changes of their results.
pub struct ProbeManager {
    engine: Engine,
    /// The source of each pod: only that one can remove it.
    sources: BTreeMap<PodUid, PodSource>,
    /// The results that have changed since they were last taken.
    unsaved: ResultChanges,
    metrics: ProbeMetrics,
}

impl ProbeManager {
    /// Starts with the results of a previous process instance.
    pub fn new(results: &Results) -> Self {
        let outcomes = results
            .iter()
            .map(|(id, result)| (id.clone(), result.outcome))
            .collect();
        ProbeManager {
            engine: Engine::new(outcomes),
            sources: BTreeMap::new(),
            unsaved: ResultChanges::default(),
            metrics: ProbeMetrics::default(),
        }
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
            ObservedChange::Remove(uid) => {
                self.metrics.remove(&uid);
                self.engine.set_observed(&uid, None, now)
            }
            ObservedChange::Synced => self.engine.on_synced(),
        };
        for id in dropped {
            self.unsaved.add(id, None);
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

    /// Counts an attempt that is about to be completed. One whose probe was removed in the meantime is not
    /// counted: nothing would remove the counter of a pod that is gone.
    pub(crate) fn count(
        &mut self,
        attempt: &ProbeAttempt,
        output: &ProbeOutput,
        duration: Duration,
    ) {
        let is_current = self.engine.is_current(&attempt.id, attempt.serial);
        if is_current && attempt.is_reported(output) {
            self.metrics.record(attempt, output, duration);
        }
    }

    /// Counts and durations of attempts.
    pub(crate) fn metrics(&self) -> &ProbeMetrics {
        &self.metrics
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
        self.unsaved.add(id.clone(), Some(result));
    }

    /// The changes of results that are still to be taken.
    pub fn unsaved(&self) -> &ResultChanges {
        &self.unsaved
    }

    /// Takes the changes of results since the last call, if there are any: to be saved, and published
    /// after that.
    pub fn take_unsaved(&mut self) -> Option<ResultChanges> {
        (!self.unsaved.is_empty()).then(|| std::mem::take(&mut self.unsaved))
    }
}

#[cfg(test)]
mod tests {
    use polylet_model::probe::ProbeKind::Readiness;

    use super::*;
    use crate::core::test_support::{at, observed, pod};

    /// A manager of two running pods that have synced, each with a readiness probe.
    fn two_pods() -> ProbeManager {
        let mut manager = ProbeManager::new(&Results::new());
        for uid in ["u1", "u2"] {
            let change = PodChange {
                source: PodSource::File,
                uid: uid.into(),
                probes: Some(pod(&[Readiness])),
            };
            manager.handle_pod(change, at(0));
            let state = observed(&[(uid, true)]).unwrap();
            manager.handle_observed(ObservedChange::Upsert(uid.into(), state), at(0));
        }
        assert!(manager.handle_observed(ObservedChange::Synced, at(0)));
        manager
    }

    /// The pods of the taken changes, and whether each has a result.
    fn taken(manager: &mut ProbeManager) -> Option<Vec<(String, bool)>> {
        let changes = manager.take_unsaved()?;
        let changes = changes.iter();
        let changes = changes.map(|(id, result)| (id.pod.to_string(), result.is_some()));
        Some(changes.collect())
    }

    #[test]
    fn only_changed_results_are_taken() {
        let mut manager = two_pods();
        assert_eq!(taken(&mut manager), None);
        let attempts = manager.start_due(at(0));
        assert_eq!(attempts.len(), 2);
        for attempt in &attempts {
            manager.complete_simulated(attempt, Some(Ok(())), at(0));
            let uid = attempt.id.pod.to_string();
            assert_eq!(taken(&mut manager), Some(vec![(uid, true)]));
        }
        // The same result again.
        let due = manager.next_due().unwrap();
        for attempt in manager.start_due(due) {
            manager.complete_simulated(&attempt, Some(Ok(())), due);
        }
        assert_eq!(taken(&mut manager), None);
        manager.handle_observed(ObservedChange::Remove("u1".into()), due);
        assert_eq!(taken(&mut manager), Some(vec![("u1".to_owned(), false)]));
    }

    #[test]
    fn only_attempts_of_probes_that_exist_are_counted() {
        let removed = |uid: &str| ObservedChange::Remove(uid.into());
        let replaced = |uid: &str| {
            let state = observed(&[("new", true), (uid, false)]).unwrap();
            ObservedChange::Upsert(uid.into(), state)
        };
        for (what, change, expected) in [
            ("nothing", None, 2),
            ("the pod is removed", Some(removed("u1")), 1),
            ("the container is replaced", Some(replaced("u1")), 1),
        ] {
            let mut manager = two_pods();
            let attempts = manager.start_due(at(0));
            if let Some(change) = change {
                manager.handle_observed(change, at(1));
            }
            for attempt in &attempts {
                manager.count(attempt, &ProbeOutput::Success, Duration::ZERO);
            }
            assert_eq!(manager.metrics().iter().count(), expected, "{what}");
            for uid in ["u1", "u2"] {
                manager.handle_observed(removed(uid), at(2));
            }
            assert_eq!(manager.metrics().iter().count(), 0, "{what}");
        }
    }

    #[test]
    fn results_of_containers_that_are_gone_are_removed_with_the_sync() {
        let mut before = two_pods();
        for attempt in before.start_due(at(0)) {
            before.complete_simulated(&attempt, Some(Ok(())), at(0));
        }
        let mut results = Results::new();
        before.take_unsaved().unwrap().apply_to(&mut results);
        let mut manager = ProbeManager::new(&results);
        let state = observed(&[("u1", true)]).unwrap();
        manager.handle_observed(ObservedChange::Upsert("u1".into(), state), at(1));
        assert!(manager.unsaved().is_empty(), "before the sync");
        manager.handle_observed(ObservedChange::Synced, at(1));
        assert_eq!(taken(&mut manager), Some(vec![("u2".to_owned(), false)]));
    }
}
