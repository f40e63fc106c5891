//! The engine with what is heard of pods and the runtime, and the verdicts that stand. No clock, no
//! wire, no disk: the one task of the service drives it, and so does the simulation, step by step.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_kit::report;
use polylet_model::ids::PodUid;
use polylet_watch::{Store, Update};
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::Verdict;

use crate::convert;
use crate::core::engine::Engine;
use crate::core::types::{Job, Judged, Observation, PodProbes};
use crate::kept;

/// Verdicts by pod, container and kind.
pub type Verdicts = BTreeMap<(String, String, i32), Verdict>;

/// An attempt to be made now.
pub struct Attempt(Job);

impl Attempt {
    /// The container that is asked.
    pub fn container_id(&self) -> &str {
        self.0.id.container.as_str()
    }
}

/// Owns what is known and told.
pub struct Judge {
    engine: Engine,
    /// Which source a pod came from: only that one can take it away.
    sources: BTreeMap<String, PodSource>,
    /// The verdicts as they stand; told once they are on disk.
    standing: Verdicts,
    unsaved: bool,
    told: Store<(String, String, i32), Verdict>,
}

impl Judge {
    /// Begins with the verdicts of an earlier life of the process.
    pub fn new(kept: Verdicts, told: Store<(String, String, i32), Verdict>) -> Self {
        told.replace(kept.clone());
        Judge {
            engine: Engine::new(kept::outcomes(&kept)),
            sources: BTreeMap::new(),
            standing: kept,
            unsaved: false,
            told,
        }
    }

    /// A source of pods told something.
    pub fn pod(&mut self, source: PodSource, update: Update<String, Pod>, now: Timestamp) {
        match update {
            Update::Upsert(uid, pod) => {
                let probes = convert::pod_probes(&pod.manifest).unwrap_or_else(|error| {
                    tracing::warn!(k8s.pod.uid = %uid, "a pod cannot be probed: {}", report(&error));
                    PodProbes::default()
                });
                self.engine.pod(&uid.as_str().into(), Some(probes), now);
                self.sources.insert(uid, source);
            }
            Update::Remove(uid) => {
                if self.sources.get(&uid) == Some(&source) {
                    self.sources.remove(&uid);
                    self.engine.pod(&uid.into(), None, now);
                }
            }
            Update::Synced | Update::Stale(_) => {}
        }
    }

    /// Pleg told something; its clock is ours, and nothing is on the host's network.
    pub fn state(&mut self, update: Update<String, PodState>, now: Timestamp) {
        self.seen(update, String::new, |at| at, now);
    }

    /// Pleg told something. `node` is the address of the host's network, `own` reads a moment of
    /// pleg's clock on ours.
    pub(crate) fn seen(
        &mut self,
        update: Update<String, PodState>,
        node: impl FnOnce() -> String,
        own: impl Fn(Timestamp) -> Timestamp,
        now: Timestamp,
    ) {
        let synced = update == Update::Synced;
        let gone = match update {
            Update::Upsert(uid, state) => {
                let observed = convert::observed(&state, node, own);
                self.engine
                    .observed(&PodUid::from(uid), Some(observed), now)
            }
            Update::Remove(uid) => self.engine.observed(&PodUid::from(uid), None, now),
            Update::Synced => self.engine.observed_all(),
            Update::Stale(_) => Vec::new(),
        };
        for id in &gone {
            self.standing.remove(&convert::key_of(id));
            self.unsaved = true;
        }
        if synced && !self.told.is_whole() {
            // Verdicts need no more than the runtime's word that their containers still run: a
            // source of pods that is away must not hold back those of the others.
            self.told.replace(self.standing.clone());
            self.told.mark_whole();
        }
    }

    /// When something is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.engine.next_due()
    }

    /// The attempts that are due.
    pub fn due(&mut self, now: Timestamp) -> Vec<Attempt> {
        self.jobs(now).into_iter().map(Attempt).collect()
    }

    /// The same, as the service carries them out.
    pub(crate) fn jobs(&mut self, now: Timestamp) -> Vec<Job> {
        self.engine.due(now)
    }

    /// An attempt ended: well, not well for this reason, or without an answer.
    pub fn attempted(
        &mut self,
        attempt: &Attempt,
        said: Option<Result<(), String>>,
        now: Timestamp,
    ) {
        let job = &attempt.0;
        let said = match said {
            Some(Ok(())) => Observation::Success,
            Some(Err(why)) => Observation::Failure(why),
            None => Observation::Unknown("no answer".to_owned()),
        };
        self.finished(job, said, now, |_| Cause {
            observed_at: Some(polylet_wire::time::to_wire(now)),
            ..Cause::default()
        });
    }

    /// The same, with all that an attempt can come to; `cause` is asked where that is a verdict.
    pub(crate) fn finished(
        &mut self,
        job: &Job,
        said: Observation,
        now: Timestamp,
        cause: impl FnOnce(&Judged) -> Cause,
    ) {
        if let Some(judged) = self.engine.finished(&job.id, job.serial, said, now) {
            let cause = cause(&judged);
            let verdict = convert::verdict(&job.id, judged, cause);
            self.standing.insert(convert::key_of(&job.id), verdict);
            self.unsaved = true;
        }
    }

    /// The verdicts, when they are to be written.
    pub fn to_save(&mut self) -> Option<Verdicts> {
        std::mem::take(&mut self.unsaved).then(|| self.standing.clone())
    }

    /// They were written, or cannot be: now they are told.
    pub fn saved(&mut self, verdicts: Verdicts) {
        self.told.replace(verdicts);
    }
}
