//! Everything that is heard, and what is told of it: no clock, no wire, no disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_watch::{Store, Update, Value};
use polylet_wire::common::v1::Cause;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Mirror, Pod, PodSource, WatchNodeResponse};
use polylet_wire::prober::v1::Verdict;
use polylet_wire::status::v1 as wire;
use polylet_wire::sync::v1::PodSync;

use crate::convert;
use crate::core::facts::{Source, Stream};
use crate::core::join::{Join, Outcome};

/// Everything that can happen to this service.
pub enum Input {
    /// A source of pods told something.
    Pod(PodSource, Update<String, Pod>),
    /// How far pods have come.
    Sync(Box<Update<String, PodSync>>),
    /// What the runtime holds.
    State(Update<String, PodState>),
    /// How containers are.
    Verdict(Update<(String, String, i32), Verdict>),
    /// Which runtime it is.
    Runtime(Value<WatchRuntimeResponse>),
    /// Static pods' mirrors, as the cluster holds them.
    Mirror(Update<String, Mirror>),
    /// This node's object in the cluster.
    Node(Value<WatchNodeResponse>),
}

/// Owns all facts and all that is told.
pub struct Desk {
    join: Join,
    statuses: Store<String, wire::PodStatus>,
}

impl Desk {
    /// Begins with the statuses of an earlier life of the process.
    pub fn new(
        kept: BTreeMap<String, Arc<PodStatus>>,
        statuses: Store<String, wire::PodStatus>,
    ) -> Self {
        Desk {
            join: Join::new(kept),
            statuses,
        }
    }

    /// Takes one input in.
    pub fn take(&mut self, input: Input) {
        match input {
            Input::Pod(source, update) => self.pod(source, update),
            Input::Sync(update) => self.sync(*update),
            Input::State(update) => self.state(update),
            Input::Verdict(update) => self.verdict(update),
            Input::Runtime(Value::Current(runtime)) => {
                let handlers = runtime.handlers.into_iter();
                let recursive = handlers.filter(|h| h.recursive_read_only_mounts);
                let recursive = recursive.map(|h| h.name).collect();
                self.join.runtime(&runtime.runtime_name, recursive);
                self.join.synced(Stream::Runtime);
            }
            Input::Runtime(Value::Stale(_)) => self.join.stale(Stream::Runtime),
            // Statuses do not follow from them.
            Input::Mirror(_) | Input::Node(_) => {}
        }
    }

    fn pod(&mut self, source: PodSource, update: Update<String, Pod>) {
        let source = match source {
            PodSource::File => Source::File,
            PodSource::Http => Source::Http,
            PodSource::Api | PodSource::Unspecified => Source::Api,
        };
        match update {
            Update::Upsert(uid, pod) => {
                let reported = convert::reported(&pod.reported_status, &uid);
                self.join.reported(&uid, reported);
                // The cluster's own word of a status comes back with the same manifest.
                if !self
                    .join
                    .knows(source, &uid, &pod.manifest, pod.stale_since.is_some())
                {
                    self.join.pod(source, uid, convert::wanted(&pod));
                }
            }
            Update::Remove(uid) => {
                self.join.reported(&uid, None);
                self.join.pod(source, uid, None);
            }
            Update::Synced => self.join.synced(Stream::Pods(source)),
            Update::Stale(_) => self.join.stale(Stream::Pods(source)),
        }
    }

    fn sync(&mut self, update: Update<String, PodSync>) {
        match update {
            Update::Upsert(uid, sync) => self.join.progress(uid, Some(convert::progress(&sync))),
            Update::Remove(uid) => self.join.progress(uid, None),
            Update::Synced => self.join.synced(Stream::Sync),
            Update::Stale(_) => self.join.stale(Stream::Sync),
        }
    }

    fn state(&mut self, update: Update<String, PodState>) {
        match update {
            Update::Upsert(uid, state) => self.join.held(uid, Some(convert::held(&state))),
            Update::Remove(uid) => self.join.held(uid, None),
            Update::Synced => self.join.synced(Stream::States),
            Update::Stale(_) => self.join.stale(Stream::States),
        }
    }

    fn verdict(&mut self, update: Update<(String, String, i32), Verdict>) {
        match update {
            Update::Upsert((uid, container, kind), verdict) => {
                if let Some(kind) = convert::probe_kind(kind) {
                    let verdict = convert::verdict(&container, kind, &verdict);
                    self.join.verdict(uid, container, kind, Some(verdict));
                }
            }
            Update::Remove((uid, container, kind)) => {
                if let Some(kind) = convert::probe_kind(kind) {
                    self.join.verdict(uid, container, kind, None);
                }
            }
            Update::Synced => self.join.synced(Stream::Verdicts),
            Update::Stale(_) => self.join.stale(Stream::Verdicts),
        }
    }

    /// What the cluster holds of a pod's status.
    pub(crate) fn reported(&self, uid: &str) -> Option<&Arc<PodStatus>> {
        self.join.reported_of(uid)
    }

    /// The addresses that the node's object tells; none says nothing.
    pub(crate) fn host_ips(&mut self, ips: Vec<String>) {
        if !ips.is_empty() {
            self.join.host_ips(ips);
        }
    }

    /// Joins every pod whose facts changed, and tells what is new. True when something that is
    /// kept has changed.
    pub fn tell(&mut self, host_ips: impl FnOnce() -> Vec<String>) -> bool {
        self.tell_of(host_ips, |_, _| Cause::default())
    }

    /// The same; what is told of each pod goes out with the cause that is given for it.
    pub(crate) fn tell_of(
        &mut self,
        host_ips: impl FnOnce() -> Vec<String>,
        mut cause: impl FnMut(&str, &Outcome) -> Cause,
    ) -> bool {
        let mut news = false;
        let dirty = self.join.take_dirty();
        if !dirty.is_empty() && !self.join.knows_host_ips() {
            self.join.host_ips(host_ips());
        }
        for uid in dirty {
            let outcome = self.join.join(&uid);
            let cause = cause(&uid, &outcome);
            match outcome {
                Outcome::Same => {}
                Outcome::Told { told, changed } => {
                    news |= changed;
                    self.statuses.upsert(uid, convert::told(&told, cause));
                }
                Outcome::Gone => {
                    news = true;
                    self.statuses.remove(&uid);
                }
            }
        }
        if self.join.is_whole() && !self.statuses.is_whole() {
            self.statuses.mark_whole();
            news |= self.join.forget_kept();
        }
        news
    }

    /// Whether everything has been heard in this life.
    pub(crate) fn is_whole(&self) -> bool {
        self.join.is_whole()
    }

    /// What has not been heard yet, for people.
    pub fn missing(&self) -> Vec<String> {
        self.join.missing()
    }

    /// What was told last of each pod, in this life or the one before: to be kept.
    pub fn statuses(&self) -> BTreeMap<String, Arc<PodStatus>> {
        self.join.statuses()
    }
}
