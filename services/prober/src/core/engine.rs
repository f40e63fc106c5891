//! All probes of the node: keeps workers in step with pods and containers, and says what is due.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::ids::PodUid;
use polylet_model::probe::ProbeKind;

use super::plan::{self, Wanted};
use super::types::{Job, Judged, Observation, Observed, Outcome, PodProbes, ProbeId};
use super::wheel::Wheel;
use super::worker::Worker;

/// The prober's view and its workers.
#[derive(Default)]
pub(crate) struct Engine {
    pods: BTreeMap<PodUid, Pod>,
    workers: BTreeMap<ProbeId, Slot>,
    wheel: Wheel,
    verdicts: BTreeMap<ProbeId, Outcome>,
    serial: u64,
    /// The runtime's containers have been heard in this life of the process.
    observed_all: bool,
}

#[derive(Default)]
struct Pod {
    /// Stays when the pod is gone from the node's pods, until its containers are.
    probes: Option<Arc<PodProbes>>,
    gone: bool,
    observed: Option<Observed>,
}

struct Slot {
    worker: Worker,
    wanted: Wanted,
    serial: u64,
}

impl Engine {
    /// Begins with the verdicts of an earlier life of the process.
    pub(crate) fn new(kept: BTreeMap<ProbeId, Outcome>) -> Self {
        Engine {
            verdicts: kept,
            ..Engine::default()
        }
    }

    /// A pod should run, as this says; or should no longer.
    pub(crate) fn pod(&mut self, uid: &PodUid, probes: Option<PodProbes>, now: Timestamp) {
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.gone = probes.is_none();
        if let Some(probes) = probes {
            pod.probes = Some(Arc::new(probes));
        }
        self.align(uid, now);
    }

    /// The runtime holds this of a pod, or nothing. Gives the verdicts that fall away.
    pub(crate) fn observed(
        &mut self,
        uid: &PodUid,
        observed: Option<Observed>,
        now: Timestamp,
    ) -> Vec<ProbeId> {
        self.pods.entry(uid.clone()).or_default().observed = observed;
        self.align(uid, now);
        if self.observed_all {
            self.drop_verdicts(uid)
        } else {
            Vec::new()
        }
    }

    /// Everything that the runtime holds has been heard. Gives the kept verdicts of containers that
    /// are no more.
    pub(crate) fn observed_all(&mut self) -> Vec<ProbeId> {
        if std::mem::replace(&mut self.observed_all, true) {
            return Vec::new();
        }
        let pods: BTreeSet<PodUid> = self.verdicts.keys().map(|id| id.pod.clone()).collect();
        pods.iter()
            .flat_map(|uid| self.drop_verdicts(uid))
            .collect()
    }

    /// When something is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.wheel.next()
    }

    /// The attempts that are due; each worker rests until its attempt has `finished`.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Job> {
        let mut jobs = Vec::new();
        while let Some(id) = self.wheel.pop(now) {
            jobs.extend(self.begin(id, now));
        }
        jobs
    }

    /// An attempt ended. Gives the verdict if it changes.
    pub(crate) fn finished(
        &mut self,
        id: &ProbeId,
        serial: u64,
        said: Observation,
        now: Timestamp,
    ) -> Option<Judged> {
        let slot = self
            .workers
            .get_mut(id)
            .filter(|slot| slot.serial == serial)?;
        let judged = slot.worker.observe(said, now);
        if let Some(due) = slot.worker.due() {
            self.wheel.schedule(id, due);
        }
        if let Some(judged) = &judged {
            self.verdicts.insert(id.clone(), judged.outcome);
            if id.kind == ProbeKind::Startup && judged.outcome == Outcome::Success {
                self.open_gate(id, now);
            }
        }
        judged
    }

    fn begin(&mut self, id: ProbeId, now: Timestamp) -> Option<Job> {
        let slot = self.workers.get_mut(&id)?;
        let pod = self.pods.get(&id.pod)?;
        let (probes, observed) = (pod.probes.as_ref()?, pod.observed.as_ref()?);
        slot.worker.begin(now);
        Some(Job {
            serial: slot.serial,
            probe: Arc::clone(&slot.wanted.probe),
            host: observed.host.clone(),
            namespace: probes.namespace.clone(),
            pod: probes.name.clone(),
            container: slot.wanted.container.clone(),
            attempt: slot.wanted.attempt,
            awaited: slot.worker.is_awaited(),
            id,
        })
    }

    /// The startup probe succeeded: the others of the container begin.
    fn open_gate(&mut self, startup: &ProbeId, now: Timestamp) {
        for kind in [ProbeKind::Liveness, ProbeKind::Readiness] {
            let id = plan::id_of(&startup.pod, &startup.container, kind);
            let Some(slot) = self.workers.get_mut(&id) else {
                continue;
            };
            slot.worker.open(now);
            if let Some(due) = slot.worker.due() {
                self.wheel.schedule(&id, due);
            }
        }
    }

    /// Makes the workers of a pod those that it must have.
    fn align(&mut self, uid: &PodUid, now: Timestamp) {
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let probes = pod.probes.clone();
        let wanted = match (&probes, &pod.observed) {
            (Some(probes), Some(observed)) => plan::wanted(uid, probes, pod.gone, observed, now),
            _ => Vec::new(),
        };
        if pod.observed.is_none() && (pod.gone || probes.is_none()) {
            self.pods.remove(uid);
        }
        let first = ProbeId {
            pod: uid.clone(),
            container: "".into(),
            kind: ProbeKind::Startup,
        };
        let present: Vec<ProbeId> = self
            .workers
            .range(first..)
            .map(|(id, _)| id.clone())
            .take_while(|id| id.pod == *uid)
            .collect();
        for id in present {
            if !wanted.iter().any(|wanted| wanted.id == id) {
                self.workers.remove(&id);
                self.wheel.cancel(&id);
            }
        }
        for wanted in wanted {
            if !self.workers.contains_key(&wanted.id) {
                self.start(wanted, probes.as_deref(), now);
            }
        }
    }

    fn start(&mut self, wanted: Wanted, probes: Option<&PodProbes>, now: Timestamp) {
        let id = wanted.id.clone();
        let kept = self.verdicts.get(&id).copied();
        let timing = wanted.probe.timing.clone();
        let worker = Worker::new(id.kind, timing, wanted.started_at, kept, phase_of(&id), now);
        let gated = id.kind != ProbeKind::Startup
            && probes.is_some_and(|probes| plan::has_startup(probes, &wanted.container))
            && self
                .verdicts
                .get(&plan::id_of(&id.pod, &id.container, ProbeKind::Startup))
                != Some(&Outcome::Success);
        if let (Some(due), false) = (worker.due(), gated) {
            self.wheel.schedule(&id, due);
        }
        self.serial += 1;
        self.workers.insert(
            id,
            Slot {
                worker,
                wanted,
                serial: self.serial,
            },
        );
    }

    /// Removes the verdicts of a pod's containers that the runtime no longer lists.
    fn drop_verdicts(&mut self, uid: &PodUid) -> Vec<ProbeId> {
        let observed = self.pods.get(uid).and_then(|pod| pod.observed.as_ref());
        let listed = |id: &ProbeId| {
            observed.is_some_and(|o| o.containers.iter().any(|c| c.id == id.container))
        };
        let first = ProbeId {
            pod: uid.clone(),
            container: "".into(),
            kind: ProbeKind::Startup,
        };
        let gone: Vec<ProbeId> = self
            .verdicts
            .range(first..)
            .map(|(id, _)| id)
            .take_while(|id| id.pod == *uid)
            .filter(|id| !listed(id))
            .cloned()
            .collect();
        for id in &gone {
            self.verdicts.remove(id);
        }
        gone
    }
}

/// Where in its period a probe falls: the same after a restart.
fn phase_of(id: &ProbeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
