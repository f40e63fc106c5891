//! All probes of the node: one worker for each probe of a running container.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ids::PodUid;
use polylet_model::probe::ProbeKind;
use polylet_schedule::DueQueue;

use super::plan::{self, DesiredProbe};
use super::types::{
    ObservedPod, OutcomeChange, PodProbes, ProbeAttempt, ProbeId, ProbeOutcome, ProbeOutput,
};
use super::worker::Worker;

/// The pods and the workers of their probes.
#[derive(Default)]
pub(crate) struct Engine {
    pods: BTreeMap<PodUid, ProbedPod>,
    workers: BTreeMap<ProbeId, ProbeEntry>,
    queue: DueQueue<ProbeId, Timestamp>,
    outcomes: BTreeMap<ProbeId, ProbeOutcome>,
    serial: u64,
    /// The state of every pod in the runtime has been received.
    synced: bool,
}

#[derive(Default)]
struct ProbedPod {
    /// Retained after the pod was removed from its source, until its containers are gone.
    probes: Option<Arc<PodProbes>>,
    removed: bool,
    observed: Option<ObservedPod>,
}

struct ProbeEntry {
    worker: Worker,
    desired: DesiredProbe,
    serial: u64,
}

impl Engine {
    /// Starts with the outcomes of a previous process instance.
    pub(crate) fn new(outcomes: BTreeMap<ProbeId, ProbeOutcome>) -> Self {
        Engine {
            outcomes,
            ..Engine::default()
        }
    }

    /// Takes a desired pod; `None` for a pod that was removed.
    pub(crate) fn set_pod(&mut self, uid: &PodUid, probes: Option<PodProbes>, now: Timestamp) {
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.removed = probes.is_none();
        if let Some(probes) = probes {
            pod.probes = Some(Arc::new(probes));
        }
        self.reconcile(uid, now);
    }

    /// Takes the state of a pod in the runtime; `None` when nothing of it is left. Returns the probes
    /// whose outcome is dropped.
    pub(crate) fn set_observed(
        &mut self,
        uid: &PodUid,
        observed: Option<ObservedPod>,
        now: Timestamp,
    ) -> Vec<ProbeId> {
        let pod = self.pods.entry(uid.clone()).or_default();
        let earlier = pod.observed.take();
        pod.observed = observed.map(|observed| observed.or_earlier_host(earlier.as_ref()));
        self.reconcile(uid, now);
        if self.synced {
            self.drop_outcomes(uid)
        } else {
            Vec::new()
        }
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.synced
    }

    /// The state of every pod in the runtime has been received. Returns the probes of containers that
    /// are gone, whose outcome is dropped.
    pub(crate) fn on_synced(&mut self) -> Vec<ProbeId> {
        if std::mem::replace(&mut self.synced, true) {
            return Vec::new();
        }
        let pods: BTreeSet<PodUid> = self.outcomes.keys().map(|id| id.pod.clone()).collect();
        pods.iter()
            .flat_map(|uid| self.drop_outcomes(uid))
            .collect()
    }

    /// When the next attempt is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    /// Starts the attempts that are due. A worker has no due time until its attempt is complete.
    pub(crate) fn start_due(&mut self, now: Timestamp) -> Vec<ProbeAttempt> {
        let mut attempts = Vec::new();
        while let Some(id) = self.queue.pop_due(now) {
            attempts.extend(self.start_attempt(id, now));
        }
        attempts
    }

    /// Whether the worker that started an attempt still exists.
    pub(crate) fn is_current(&self, id: &ProbeId, serial: u64) -> bool {
        let entry = self.workers.get(id);
        entry.is_some_and(|entry| entry.serial == serial)
    }

    /// Completes an attempt. Returns the change of the outcome, if any.
    pub(crate) fn complete(
        &mut self,
        id: &ProbeId,
        serial: u64,
        output: ProbeOutput,
        now: Timestamp,
    ) -> Option<OutcomeChange> {
        let entry = self
            .workers
            .get_mut(id)
            .filter(|entry| entry.serial == serial)?;
        let change = entry.worker.complete_attempt(output, now);
        if let Some(due) = entry.worker.due() {
            self.queue.set(id.clone(), due);
        }
        if let Some(change) = &change {
            self.outcomes.insert(id.clone(), change.outcome);
            if id.kind == ProbeKind::Startup && change.outcome == ProbeOutcome::Success {
                self.start_other_probes(id, now);
            }
        }
        change
    }

    fn start_attempt(&mut self, id: ProbeId, now: Timestamp) -> Option<ProbeAttempt> {
        let entry = self.workers.get_mut(&id)?;
        let pod = self.pods.get(&id.pod)?;
        let (probes, observed) = (pod.probes.as_ref()?, pod.observed.as_ref()?);
        entry.worker.start_attempt(now);
        Some(ProbeAttempt {
            serial: entry.serial,
            probe: Arc::clone(&entry.desired.probe),
            host: observed.host.clone().unwrap_or_default(),
            namespace: probes.namespace.clone(),
            pod: probes.name.clone(),
            container: entry.desired.container.clone(),
            attempt: entry.desired.attempt,
            awaited: entry.worker.is_awaited(),
            counts: entry.worker.counts(),
            id,
        })
    }

    /// Starts the other probes of a container whose startup probe has succeeded.
    fn start_other_probes(&mut self, startup: &ProbeId, now: Timestamp) {
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            let id = plan::probe_id(&startup.pod, &startup.container, kind);
            let Some(entry) = self.workers.get_mut(&id) else {
                continue;
            };
            entry.worker.schedule_first(now);
            if let Some(due) = entry.worker.due() {
                self.queue.set(id, due);
            }
        }
    }

    /// Adds and removes workers of a pod.
    fn reconcile(&mut self, uid: &PodUid, now: Timestamp) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let probes = pod.probes.clone();
        let desired = match (&probes, &pod.observed) {
            (Some(probes), Some(observed)) => {
                plan::desired_probes(uid, probes, pod.removed, observed, now)
            }
            _ => Vec::new(),
        };
        if pod.observed.is_none() && (pod.removed || probes.is_none()) {
            self.pods.remove(uid);
        }
        let current: Vec<ProbeId> = self
            .workers
            .range(first_id(uid)..)
            .map(|(id, _)| id.clone())
            .take_while(|id| id.pod == *uid)
            .collect();
        for id in current {
            if !desired.iter().any(|desired| desired.id == id) {
                self.workers.remove(&id);
                self.queue.cancel(&id);
            }
        }
        for desired in desired {
            if !self.workers.contains_key(&desired.id) {
                self.add_worker(desired, probes.as_deref(), now);
            }
        }
    }

    fn add_worker(&mut self, desired: DesiredProbe, probes: Option<&PodProbes>, now: Timestamp) {
        let id = desired.id.clone();
        let outcome = self.outcomes.get(&id).copied();
        let timing = desired.probe.timing.clone();
        let phase = phase_of(&id);
        let worker = Worker::new(id.kind, timing, desired.started_at, outcome, phase, now);
        let startup = plan::probe_id(&id.pod, &id.container, ProbeKind::Startup);
        let waits_for_startup = id.kind != ProbeKind::Startup
            && probes.is_some_and(|probes| plan::has_startup_probe(probes, &desired.container))
            && self.outcomes.get(&startup) != Some(&ProbeOutcome::Success);
        if let (Some(due), false) = (worker.due(), waits_for_startup) {
            self.queue.set(id.clone(), due);
        }
        self.serial += 1;
        self.workers.insert(
            id,
            ProbeEntry {
                worker,
                desired,
                serial: self.serial,
            },
        );
    }

    /// Drops the outcomes of a pod's containers that the runtime no longer has.
    fn drop_outcomes(&mut self, uid: &PodUid) -> Vec<ProbeId> {
        let observed = self.pods.get(uid).and_then(|pod| pod.observed.as_ref());
        let exists = |id: &ProbeId| {
            observed.is_some_and(|o| o.containers.iter().any(|c| c.id == id.container))
        };
        let gone: Vec<ProbeId> = self
            .outcomes
            .range(first_id(uid)..)
            .map(|(id, _)| id)
            .take_while(|id| id.pod == *uid)
            .filter(|id| !exists(id))
            .cloned()
            .collect();
        for id in &gone {
            self.outcomes.remove(id);
        }
        gone
    }
}

/// The smallest id of a pod's probes.
fn first_id(uid: &PodUid) -> ProbeId {
    ProbeId {
        pod: uid.clone(),
        container: "".into(),
        kind: ProbeKind::Startup,
    }
}

/// The phase of a probe within its period. The same after a restart of this process.
fn phase_of(id: &ProbeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
