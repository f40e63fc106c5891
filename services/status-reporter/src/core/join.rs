//! Joins the facts of each pod into its status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::probe::ProbeKind;
use polylet_model::status::{self, ContainerPhase, Sandbox, Stage, StatusFacts, Verdict};

use super::facts::{Held, Progress, Source, Stream, Wanted};

mod before;
mod told;

pub(crate) use told::{Leaving, Outcome, Told};

/// All facts, and what was told of them.
#[derive(Default)]
pub(crate) struct Join {
    wanted: BTreeMap<Source, BTreeMap<String, Wanted>>,
    progress: BTreeMap<String, Progress>,
    held: BTreeMap<String, Held>,
    verdicts: BTreeMap<String, BTreeMap<(String, ProbeKind), Verdict>>,
    runtime: String,
    recursive_read_only: BTreeSet<String>,
    host_ips: Vec<String>,
    heard: BTreeSet<Stream>,
    stale: BTreeSet<Stream>,
    told: BTreeMap<String, Told>,
    /// Statuses of an earlier life of the process.
    kept: BTreeMap<String, Arc<PodStatus>>,
    /// What the cluster holds of its pods.
    reported: BTreeMap<String, Arc<PodStatus>>,
    dirty: BTreeSet<String>,
}

impl Join {
    pub(crate) fn new(kept: BTreeMap<String, Arc<PodStatus>>) -> Self {
        Self {
            kept,
            runtime: "containerd".to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn pod(&mut self, source: Source, uid: String, wanted: Option<Wanted>) {
        set(self.wanted.entry(source).or_default(), &uid, wanted);
        self.dirty.insert(uid);
    }

    /// Whether a pod is known just so.
    pub(crate) fn knows(&self, source: Source, uid: &str, manifest: &[u8], stale: bool) -> bool {
        let known = self.wanted.get(&source).and_then(|of| of.get(uid));
        known.is_some_and(|known| known.stale == stale && known.manifest.raw() == manifest)
    }

    /// What the cluster holds of a pod's status. What somebody else has written there counts.
    pub(crate) fn reported(&mut self, uid: &str, reported: Option<Arc<PodStatus>>) {
        let told = self.told.get(uid).map(|told| &told.status);
        // What was told and has come back is held once.
        let told = told.filter(|told| Some(*told) == reported.as_ref());
        let reported = told.cloned().or(reported);
        let known = self.reported.get(uid).map(Arc::as_ref);
        let news = reported.as_deref();
        let counts = known.map(before::of_others) != news.map(before::of_others);
        set(&mut self.reported, uid, reported);
        if counts {
            self.dirty.insert(uid.to_owned());
        }
    }

    /// What the cluster holds of a pod's status.
    pub(crate) fn reported_of(&self, uid: &str) -> Option<&Arc<PodStatus>> {
        self.reported.get(uid)
    }

    pub(crate) fn progress(&mut self, uid: String, progress: Option<Progress>) {
        set(&mut self.progress, &uid, progress);
        self.dirty.insert(uid);
    }

    pub(crate) fn held(&mut self, uid: String, held: Option<Held>) {
        set(&mut self.held, &uid, held);
        self.dirty.insert(uid);
    }

    pub(crate) fn verdict(
        &mut self,
        uid: String,
        container: String,
        kind: ProbeKind,
        verdict: Option<Verdict>,
    ) {
        let of_pod = self.verdicts.entry(uid.clone()).or_default();
        match verdict {
            Some(verdict) => of_pod.insert((container, kind), verdict),
            None => of_pod.remove(&(container, kind)),
        };
        if of_pod.is_empty() {
            self.verdicts.remove(&uid);
        }
        self.dirty.insert(uid);
    }

    /// The runtime's name, the first part of container ids; and its handlers that can make
    /// read-only what is mounted below a read-only mount.
    pub(crate) fn runtime(&mut self, name: &str, recursive_read_only: BTreeSet<String>) {
        if name.is_empty()
            || (name == self.runtime && recursive_read_only == self.recursive_read_only)
        {
            return;
        }
        name.clone_into(&mut self.runtime);
        self.recursive_read_only = recursive_read_only;
        self.all_dirty();
    }

    pub(crate) fn host_ips(&mut self, ips: Vec<String>) {
        if ips != self.host_ips {
            self.host_ips = ips;
            self.all_dirty();
        }
    }

    pub(crate) fn knows_host_ips(&self) -> bool {
        !self.host_ips.is_empty()
    }

    pub(crate) fn synced(&mut self, stream: Stream) {
        let first = self.heard.insert(stream);
        if self.stale.remove(&stream) || first {
            self.all_dirty();
        }
    }

    pub(crate) fn stale(&mut self, stream: Stream) {
        if self.stale.insert(stream) {
            self.all_dirty();
        }
    }

    fn all_dirty(&mut self) {
        let wanted = self.wanted.values().flat_map(BTreeMap::keys);
        let known = wanted
            .chain(self.progress.keys())
            .chain(self.held.keys())
            .chain(self.told.keys());
        let known: Vec<String> = known.cloned().collect();
        self.dirty.extend(known);
    }

    /// Whether every fact about pods of one source can be told.
    fn hears(&self, source: Source) -> bool {
        let beside = [
            Stream::Sync,
            Stream::States,
            Stream::Verdicts,
            Stream::Runtime,
        ];
        self.heard.contains(&Stream::Pods(source))
            && beside.iter().all(|stream| self.heard.contains(stream))
    }

    /// Whether everything has been heard in this life, so that what is not told is not there.
    pub(crate) fn is_whole(&self) -> bool {
        Source::ALL.into_iter().all(|source| self.hears(source))
    }

    /// What has not been heard yet, for people.
    pub(crate) fn missing(&self) -> Vec<String> {
        let missing = Stream::ALL
            .iter()
            .filter(|stream| !self.heard.contains(stream));
        missing.map(|stream| stream.what().to_owned()).collect()
    }

    /// Pods whose facts have changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<String> {
        if Source::ALL.into_iter().any(|source| self.hears(source)) {
            std::mem::take(&mut self.dirty)
        } else {
            BTreeSet::new()
        }
    }

    /// What was told last of each pod, in this life or the one before.
    pub(crate) fn statuses(&self) -> BTreeMap<String, Arc<PodStatus>> {
        let told = self
            .told
            .iter()
            .map(|(uid, told)| (uid.clone(), told.status.clone()));
        self.kept.clone().into_iter().chain(told).collect()
    }

    /// Everything has been heard and joined: what is kept of other pods is of no use any more.
    /// Tells whether there was any.
    pub(crate) fn forget_kept(&mut self) -> bool {
        !std::mem::take(&mut self.kept).is_empty()
    }

    /// What was told of a pod last, in this life or the one before.
    pub(crate) fn last(&self, uid: &str) -> Option<&Arc<PodStatus>> {
        self.told
            .get(uid)
            .map(|told| &told.status)
            .or_else(|| self.kept.get(uid))
    }

    /// Joins one pod.
    pub(crate) fn join(&mut self, uid: &str) -> Outcome {
        if self.is_gone(uid) {
            self.kept.remove(uid);
            self.reported.remove(uid);
            return if self.told.remove(uid).is_some() {
                Outcome::Gone
            } else {
                Outcome::Same
            };
        }
        let Some(told) = self.compute(uid) else {
            return Outcome::Same;
        };
        if self.told.get(uid) == Some(&told) {
            return Outcome::Same;
        }
        let changed = self.last(uid) != Some(&told.status);
        self.kept.remove(uid);
        self.told.insert(uid.to_owned(), told.clone());
        Outcome::Told {
            told: Box::new(told),
            changed,
        }
    }

    fn wanted_by(&self, uid: &str) -> Option<(Source, &Wanted)> {
        Source::ALL
            .into_iter()
            .find_map(|source| Some((source, self.wanted.get(&source)?.get(uid)?)))
    }

    /// Nobody wants it, nothing of it is left, and everybody has been heard on that.
    fn is_gone(&self, uid: &str) -> bool {
        self.is_whole()
            && self.wanted_by(uid).is_none()
            && self
                .progress
                .get(uid)
                .is_none_or(|progress| progress.reclaimed)
            && self.held.get(uid).is_none_or(Held::is_empty)
    }

    /// `None` while it is not known what should run, or not heard whether it still should.
    fn compute(&self, uid: &str) -> Option<Told> {
        let (wanted, progress) = (self.wanted_by(uid), self.progress.get(uid));
        let heard = wanted.map_or_else(|| self.is_whole(), |(source, _)| self.hears(source));
        if !heard {
            return None;
        }
        let of_leaving = || progress.and_then(|progress| progress.last_manifest.as_ref());
        let of_last = || self.told.get(uid).map(|told| &told.manifest);
        let manifest = wanted
            .map(|(_, wanted)| &wanted.manifest)
            .or_else(of_leaving)
            .or_else(of_last)?;
        let (nothing, fresh) = (Held::default(), Progress::default());
        // The coordinator has not heard of it yet.
        let unheard = progress.is_none() && self.held.get(uid).is_none_or(Held::is_empty);
        let held = self.held.get(uid).unwrap_or(&nothing);
        let progress = progress.unwrap_or(&fresh);
        let verdicts: Vec<Verdict> = self
            .verdicts
            .get(uid)
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect();
        let newest = held.sandboxes.first();
        let handler = newest.map_or("", |sandbox| &sandbox.runtime_handler);
        // The status is that of the pod as it was allocated.
        let given = progress.allocated.as_ref();
        let given = given.map(|given| given.put_into(manifest));
        let stage = stage(progress, held);
        // A runtime without events tells of a sandbox's end when it is asked next: the pod may be
        // gone by then.
        let ended: Vec<Sandbox>;
        let sandboxes = match progress.reclaimed {
            true => {
                ended = held.sandboxes.iter().map(no_more).collect();
                &ended
            }
            false => &held.sandboxes,
        };
        let previous = self.previous(uid, progress);
        let status = status::compute(&StatusFacts {
            ends_are_decided: true,
            manifest: given.as_ref().unwrap_or(manifest),
            sandboxes,
            containers: &held.containers,
            verdicts: &verdicts,
            notes: &progress.notes,
            resize: progress.resize.as_ref(),
            resizing: progress.resizing.as_ref(),
            stage,
            terminal: progress.terminal.as_ref(),
            acknowledged_at: progress.acknowledged_at,
            host_ips: &self.host_ips,
            runtime: &self.runtime,
            recursive_read_only: self.recursive_read_only.contains(handler),
            previous: previous.as_ref(),
        });
        Some(Told {
            manifest: manifest.clone(),
            status: Arc::new(status),
            waiting_for: progress.waiting_for.clone(),
            stale: self.stale_for(wanted, held),
            leaving: Leaving {
                unwanted: wanted.is_none(),
                stopped: stage == Stage::Terminated,
                reclaimed: progress.reclaimed,
            },
            unadmitted: progress.unadmitted || unheard,
        })
    }

    fn previous(&self, uid: &str, progress: &Progress) -> Option<PodStatus> {
        let last = self.last(uid).filter(|last| same_life(last, progress));
        let reported = self.reported.get(uid);
        before::previous(last.map(Arc::as_ref), reported.map(Arc::as_ref))
    }

    fn stale_for(&self, wanted: Option<(Source, &Wanted)>, held: &Held) -> Vec<String> {
        let concerns = |stream: &Stream| match (stream, wanted) {
            (Stream::Pods(source), Some((own, _))) => *source == own,
            _ => true,
        };
        let away = self
            .stale
            .iter()
            .filter(|stream| concerns(stream))
            .map(|stream| stream.peer());
        // What pod-config has kept stands for its source.
        let kept_copy = wanted
            .filter(|(_, wanted)| wanted.stale)
            .map(|(source, _)| match source {
                Source::Api => "API server",
                Source::File | Source::Http => "pod-config",
            });
        let names: BTreeSet<&str> = away.chain(kept_copy).collect();
        let mut stale: Vec<String> = names.into_iter().map(str::to_owned).collect();
        if !held.inspect_error.is_empty() {
            stale.push(format!("container runtime: {}", held.inspect_error));
        }
        stale
    }
}

/// Streams are not ordered among each other. That a pod is over may be heard
/// before the ends of its containers: these are on their way, and not unknown.
fn stage(progress: &Progress, held: &Held) -> Stage {
    let ended = held
        .containers
        .iter()
        // One that was never started has nothing to end.
        .all(|c| matches!(c.phase, ContainerPhase::Exited | ContainerPhase::Created));
    if ended {
        progress.stage
    } else {
        progress.stage.min(Stage::Terminating)
    }
}

/// A pod that was taken up anew (the same manifest put back) starts over.
fn same_life(last: &PodStatus, progress: &Progress) -> bool {
    match (&last.start_time, progress.acknowledged_at) {
        (Some(start), Some(acknowledged)) => start.0.as_second() == acknowledged.as_second(),
        _ => true,
    }
}

fn set<V>(map: &mut BTreeMap<String, V>, uid: &str, value: Option<V>) {
    match value {
        Some(value) => map.insert(uid.to_owned(), value),
        None => map.remove(uid),
    };
}

#[cfg(test)]
mod tests;

fn no_more(sandbox: &Sandbox) -> Sandbox {
    Sandbox {
        ready: false,
        ..sandbox.clone()
    }
}
