//! The pods that are bound to this node, and the mirrors among them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use polylet_kit::cause;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{Mirror, Pod, PodSource, Problem};
use polylet_wire::time::to_wire;
use serde_json::Value;
use tokio::sync::watch;
use tracing::Span;

use super::follow::{Ear, Followed};
use super::request::Failure;
use super::trouble::Trouble;
use crate::convert;
use crate::core::cluster::kept::{KeptPod, PodKey};
use crate::core::cluster::pod::{self, ApiPod, Sorted};
use crate::keep::Entries;

mod kept;
#[cfg(test)]
mod tests;

pub(crate) use kept::Keeping;
use kept::{Former, News, wire_of};

/// The streams of pods.
#[derive(Clone)]
pub(crate) struct Stores {
    /// Without a status: a status patch is no change here.
    pub(crate) plain: Store<String, Pod>,
    /// With it.
    pub(crate) reported: Store<String, Pod>,
    pub(crate) mirrors: Store<String, Mirror>,
}

impl Stores {
    pub(crate) fn new(incarnation: &str) -> Stores {
        Stores {
            plain: Store::new(incarnation),
            reported: Store::new(incarnation),
            mirrors: Store::new(incarnation),
        }
    }

    /// They are all that there is.
    pub(crate) fn mark_whole(&self) {
        self.plain.mark_whole();
        self.reported.mark_whole();
        self.mirrors.mark_whole();
    }
}

/// What is followed.
pub(crate) fn followed(node: &str) -> Followed {
    Followed {
        path: "/api/v1/pods".to_owned(),
        by: Some(("spec.nodeName", node.to_owned())),
        name: None,
    }
}

/// Hears of pods.
pub(crate) struct Pods {
    stores: Stores,
    trouble: Trouble,
    keep: Entries<PodKey>,
    problems: watch::Sender<Vec<Problem>>,
    /// Of a former life, until the server is heard.
    kept: Former,
    /// Pods that cannot be read, by uid and name.
    refused: BTreeMap<(String, String), Problem>,
}

impl Pods {
    pub(crate) fn new(
        stores: Stores,
        trouble: Trouble,
        keep: Entries<PodKey>,
        problems: watch::Sender<Vec<Problem>>,
        node: &str,
    ) -> Pods {
        let kept = Former::load(&keep, node);
        Pods {
            stores,
            trouble,
            keep,
            problems,
            kept,
            refused: BTreeMap::new(),
        }
    }

    /// The pod of a uid as it was told last, or in a former life.
    fn known(&self, uid: &str) -> Option<Pod> {
        let told = self.stores.reported.get(&uid.to_owned());
        told.or_else(|| Some(wire_of(self.kept.pods.get(uid)?, None)))
    }

    /// What a received object makes of what is told: a pod with its status, or a mirror.
    fn learn(&mut self, object: Value) -> Option<Learned> {
        let mut known = None;
        let sorted = pod::sort(object, |uid| {
            known = self.known(uid);
            let seen = known.as_ref().and_then(|pod| pod::seen_in(&pod.manifest));
            seen.unwrap_or_else(Timestamp::now)
        });
        match sorted {
            Sorted::Pod(pod) => {
                self.refused.retain(|(uid, _), _| *uid != pod.uid);
                let pod = served(pod, known.as_ref());
                let news = News::of(&pod, known.as_ref());
                Some(Learned::Pod(pod, news))
            }
            Sorted::Mirror(mirror) => {
                self.refused.retain(|(uid, _), _| *uid != mirror.uid);
                Some(Learned::Mirror(convert::mirror(mirror)))
            }
            Sorted::Refused { name, uid, finding } => {
                let mut finding = finding;
                let known = self.known(&uid);
                if known.is_some() {
                    finding.message += ": until then, what was accepted before stands";
                }
                let origin = format!("API server, Pod {name}");
                let now = Timestamp::now();
                let problem = convert::problem(PodSource::Api, &origin, &finding, now);
                let (field, message) = (&problem.field, &problem.message);
                let known_problem = self.refused.get(&(uid.clone(), name.clone()));
                if known_problem.is_none_or(|known| known.message != problem.message) {
                    tracing::warn!(origin, field, "{message}");
                    self.refused.insert((uid, name), problem);
                }
                known.map(|pod| {
                    let stale_since = None;
                    Learned::Pod(Pod { stale_since, ..pod }, News::None)
                })
            }
        }
    }

    fn tell(&mut self, pod: Pod, news: News) {
        let uid = uid_of(&pod);
        let plain = Pod {
            reported_status: Bytes::new(),
            ..pod.clone()
        };
        let new = !self.stores.reported.contains(&uid);
        if self.stores.plain.upsert(uid.clone(), plain) {
            log("accepted", &pod, new);
        }
        self.stores.reported.upsert(uid.clone(), pod);
        self.note(uid, news);
    }

    /// Has kept what is told now: before, it would be kept that there is none.
    fn note(&self, uid: String, news: News) {
        match news {
            News::None => {}
            News::Status => self.keep.later(PodKey::Pod(uid)),
            News::Manifest => self.keep.soon(PodKey::Pod(uid)),
        }
    }

    fn publish_problems(&self) {
        let mut all: Vec<Problem> = self.trouble.problem().into_iter().collect();
        all.extend(self.refused.values().cloned());
        self.problems.send_if_modified(|problems| {
            let changed = *problems != all;
            *problems = all;
            changed
        });
    }

    fn here(&mut self) {
        if self.trouble.since().is_some() {
            self.keep.later(PodKey::Away);
        }
        self.trouble.over();
        self.publish_problems();
    }

    /// The server is not heard: what a former life kept stands for it, so that pods start and are
    /// not taken for orphans.
    fn fall_back(&mut self) {
        if self.stores.plain.is_whole() {
            return;
        }
        if self.kept.pods.is_empty() {
            return;
        }
        let kept = std::mem::take(&mut self.kept);
        let since = kept.away_since.unwrap_or_else(Timestamp::now);
        tracing::warn!(pods = kept.pods.len(), %since, "the pods last heard of stand for the API server");
        let age = |pod: &KeptPod| (pod::created_in(&pod.manifest), pod.uid.clone());
        let ages = kept.pods.values().map(age).collect();
        let pod = |(uid, pod): (String, KeptPod)| (uid, wire_of(&pod, Some(since)));
        let pods = kept.pods.into_iter().map(pod).collect();
        self.replace(ages, pods);
    }

    /// They are all. Of pods that come together the oldest is told first, so that it has its place
    /// when there is not room for all, as with upstream.
    fn replace(
        &mut self,
        mut ages: Vec<(Option<Timestamp>, String)>,
        mut pods: BTreeMap<String, Pod>,
    ) {
        ages.sort();
        let pods: Vec<(String, Pod)> = ages
            .into_iter()
            .filter_map(|(_, uid)| pods.remove_entry(&uid))
            .collect();
        let plain = pods.iter().map(|(uid, pod)| {
            let plain = Pod {
                reported_status: Bytes::new(),
                ..pod.clone()
            };
            (uid.clone(), plain)
        });
        self.stores.plain.replace(plain);
        self.stores.reported.replace(pods);
        self.stores.plain.mark_whole();
        self.stores.reported.mark_whole();
    }
}

impl Ear for Pods {
    async fn whole(&mut self, all: &mut (dyn Iterator<Item = Value> + Send)) {
        let (mut pods, mut mirrors) = (BTreeMap::new(), BTreeMap::new());
        // The oldest first.
        let mut ages = Vec::new();
        let mut noted = Vec::new();
        let before: BTreeSet<(String, String)> = self.refused.keys().cloned().collect();
        let mut listed = BTreeSet::new();
        for object in all {
            if let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) {
                listed.insert(uid.to_owned());
            }
            let created = pod::created(&object);
            match self.learn(object) {
                Some(Learned::Pod(pod, news)) => {
                    let uid = uid_of(&pod);
                    noted.push((uid.clone(), news));
                    ages.push((created, uid.clone()));
                    pods.insert(uid, pod);
                }
                Some(Learned::Mirror(mirror)) => drop(mirrors.insert(mirror_uid(&mirror), mirror)),
                None => {}
            }
            // Each may be a megabyte: in between others get their turn.
            tokio::task::yield_now().await;
        }
        // Those that were refused before and are not there any more.
        self.refused
            .retain(|key, _| !before.contains(key) || listed.contains(&key.0));
        let told = self.stores.reported.snapshot();
        for (uid, pod) in &pods {
            if !told.contains_key(uid) {
                log("accepted", pod, true);
            }
        }
        for (_, pod) in told.iter().filter(|(uid, _)| !pods.contains_key(*uid)) {
            log("removed", pod, true);
        }
        let former = std::mem::take(&mut self.kept).pods;
        let gone = told.keys().chain(former.keys());
        let gone = gone.filter(|uid| !pods.contains_key(*uid));
        noted.extend(gone.map(|uid| (uid.clone(), News::Manifest)));
        self.replace(ages, pods);
        for (uid, news) in noted {
            self.note(uid, news);
        }
        self.stores.mirrors.replace(mirrors);
        self.stores.mirrors.mark_whole();
        // All of it is written when it cannot be written on what there was.
        self.keep.soon(PodKey::Away);
        self.here();
    }

    fn changed(&mut self, object: Value) {
        match self.learn(object) {
            Some(Learned::Pod(pod, news)) => self.tell(pod, news),
            Some(Learned::Mirror(mirror)) => {
                let uid = mirror_uid(&mirror);
                // An annotation may have made a mirror of what was told as a pod.
                self.stores.plain.remove(&uid);
                if self.stores.reported.remove(&uid) {
                    self.keep.soon(PodKey::Pod(uid.clone()));
                }
                self.stores.mirrors.upsert(uid, mirror);
            }
            None => {}
        }
        self.publish_problems();
    }

    fn gone(&mut self, object: Value) {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        let uid = uid.unwrap_or_default().to_owned();
        if let Some(pod) = self.stores.reported.get(&uid) {
            log("removed", &pod, true);
            self.stores.plain.remove(&uid);
            self.stores.reported.remove(&uid);
            self.keep.soon(PodKey::Pod(uid.clone()));
        }
        self.stores.mirrors.remove(&uid);
        self.refused.retain(|(of, _), _| *of != uid);
        self.publish_problems();
    }

    fn watching(&mut self) {
        self.here();
    }

    fn failed(&mut self, failure: &Failure) {
        let began = self.trouble.since().is_none();
        let now = self.kept.away_since.unwrap_or_else(Timestamp::now);
        self.trouble.note(failure, now);
        self.fall_back();
        if began && self.stores.plain.is_whole() {
            // Since when it is away outlives this process, too.
            self.keep.later(PodKey::Away);
        }
        self.publish_problems();
    }

    fn late(&mut self) {
        self.fall_back();
    }

    fn asks_first(&self) -> bool {
        true
    }
}

enum Learned {
    Pod(Pod, News),
    Mirror(Mirror),
}

/// The pod as it is told: with a trace of its own from the first sight of this manifest on.
fn served(pod: ApiPod, known: Option<&Pod>) -> Pod {
    let known = known.filter(|known| known.digest == pod.digest);
    let cause = match known {
        Some(known) => known.cause.clone().unwrap_or_default(),
        None => {
            let span = observe(&pod);
            let mut cause = cause::of_span(&span);
            cause.observed_at = Some(to_wire(Timestamp::now()));
            cause
        }
    };
    convert::api_pod(pod, cause)
}

/// The root of a pod's trace.
fn observe(pod: &ApiPod) -> Span {
    let span = crate::source::observe("API server");
    span.record("k8s.pod.uid", pod.uid.as_str())
        .record("k8s.pod.name", pod.name.as_str())
        .record("k8s.namespace.name", pod.namespace.as_str())
        .record("result", "accepted");
    span
}

fn uid_of(pod: &Pod) -> String {
    let of = pod.r#ref.as_ref();
    of.map(|of| of.uid.clone()).unwrap_or_default()
}

fn mirror_uid(mirror: &Mirror) -> String {
    let of = mirror.r#ref.as_ref();
    of.map(|of| of.uid.clone()).unwrap_or_default()
}

fn log(what: &str, pod: &Pod, news: bool) {
    let Some(of) = pod.r#ref.as_ref().filter(|_| news) else {
        return;
    };
    tracing::info!(
        pod = format!("{}/{}", of.namespace, of.name),
        uid = of.uid,
        "{what}"
    );
}
