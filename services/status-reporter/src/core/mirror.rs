//! Static pods' mirrors in the cluster: which to make, and which to remove.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::Manifest;
use polylet_model::constants::pod_annotation::{CONFIG_HASH, CONFIG_MIRROR};
use polylet_model::hash::fnv1a_32;
use serde_json::{Value, json};

use super::bucket::{Bucket, Moment};
use super::report::want::Holds;

/// How long the watch may take to tell what was made.
const ECHO: Duration = Duration::from_secs(5);
/// After a failure the next attempt waits so long, and twice as long each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A mirror as the cluster holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mirror {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The hash of the static pod that it was made of.
    pub(crate) of: String,
    pub(crate) deleting: bool,
    pub(crate) status: Option<Arc<PodStatus>>,
}

/// This node's object in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) deleting: bool,
}

/// What to do about one full name: first remove, then make.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The uid of the mirror to remove, of that one alone.
    pub(crate) delete: Option<String>,
    /// The pod to make.
    pub(crate) create: Option<Value>,
}

type FullName = (String, String);

#[derive(Default)]
struct Attempt {
    under_way: bool,
    not_before: Moment,
    failures: u32,
}

/// All static pods and all mirrors.
#[derive(Default)]
pub(crate) struct Mirrors {
    /// Static pods by uid, and whether a source still wants them.
    statics: BTreeMap<String, (Manifest, bool)>,
    mirrors: BTreeMap<String, Mirror>,
    node: Option<Node>,
    /// The cluster's mirrors have been heard: what is not known is not there.
    heard: bool,
    /// Everything has been heard: a mirror of nothing is an orphan.
    whole: bool,
    attempts: BTreeMap<FullName, Attempt>,
    changed: bool,
    /// When something waits no longer.
    next: Option<Moment>,
}

impl Mirrors {
    /// A static pod is there, and wanted or on its way out; or it is gone.
    pub(crate) fn pod(&mut self, uid: &str, pod: Option<(Manifest, bool)>) {
        self.changed = true;
        match pod {
            Some(pod) => self.statics.insert(uid.to_owned(), pod),
            None => self.statics.remove(uid),
        };
    }

    /// The cluster holds a mirror, or not any more.
    pub(crate) fn mirror(&mut self, uid: &str, mirror: Option<Mirror>) {
        self.changed = true;
        let known = self.mirrors.get(uid);
        let name = mirror.as_ref().or(known).map(key_of_mirror);
        if let Some(attempt) = name.and_then(|name| self.attempts.get_mut(&name)) {
            // What is there now is told: nothing is waited for any more.
            attempt.not_before = Moment::ZERO;
        }
        match mirror {
            Some(mirror) => self.mirrors.insert(uid.to_owned(), mirror),
            None => self.mirrors.remove(uid),
        };
    }

    pub(crate) fn node(&mut self, node: Option<Node>) {
        self.changed = true;
        self.node = node;
    }

    /// The cluster's mirrors have been told.
    pub(crate) fn heard(&mut self) {
        self.changed |= !self.heard;
        self.heard = true;
    }

    pub(crate) fn whole(&mut self, whole: bool) {
        self.changed |= self.whole != whole;
        self.whole = whole;
    }

    /// What the cluster holds of each static pod.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&str, Option<Holds>)> {
        self.statics.iter().map(|(uid, (manifest, _))| {
            let mirror = self.mirrors.values().find(|mirror| {
                !mirror.deleting
                    && mirror.of == hash(manifest)
                    && key_of_mirror(mirror) == key(manifest)
            });
            let holds = mirror.and_then(|mirror| {
                Some(Holds {
                    uid: mirror.uid.clone(),
                    status: mirror.status.clone()?,
                })
            });
            (uid.as_str(), holds)
        })
    }

    /// When something may be due, if nothing is heard until then.
    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.next
    }

    /// What is to be done now.
    pub(crate) fn due(&mut self, bucket: &mut Bucket, now: Moment) -> Vec<Job> {
        if !self.changed && self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.changed = false;
        self.next = None;
        let mut jobs = Vec::new();
        for name in self.names() {
            let Some(job) = self.job(&name) else {
                // One under way is still heard of.
                self.attempts
                    .retain(|of, attempt| *of != name || attempt.under_way);
                continue;
            };
            let attempt = self.attempts.entry(name).or_default();
            if attempt.under_way {
                continue;
            }
            let waits = if attempt.not_before > now {
                Err(attempt.not_before)
            } else {
                bucket.take(now)
            };
            match waits {
                Ok(()) => {
                    attempt.under_way = true;
                    jobs.push(job);
                }
                Err(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
            }
        }
        jobs
    }

    /// A job ended: done, and the watch will tell; or not.
    pub(crate) fn ended(&mut self, job: &Job, done: bool, now: Moment) {
        self.changed = true;
        let name = (job.namespace.clone(), job.name.clone());
        let attempt = self.attempts.entry(name).or_default();
        attempt.under_way = false;
        if done {
            attempt.failures = 0;
            attempt.not_before = now + ECHO;
            return;
        }
        attempt.failures = attempt.failures.saturating_add(1);
        let doubled = FIRST_WAIT.saturating_mul(1 << attempt.failures.min(16));
        let drawn = fnv1a_32(format!("{} {}", job.name, attempt.failures).as_bytes());
        let share = f64::from(drawn) / f64::from(u32::MAX);
        attempt.not_before = now + doubled.min(LONGEST_WAIT).mul_f64(1.0 + share / 2.0);
    }

    fn names(&self) -> Vec<FullName> {
        let statics = self.statics.values().map(|(manifest, _)| key(manifest));
        let mirrors = self.mirrors.values().map(key_of_mirror);
        let attempts = self.attempts.keys().cloned();
        let mut names: Vec<_> = statics.chain(mirrors).chain(attempts).collect();
        names.sort();
        names.dedup();
        names
    }

    fn job(&self, name: &FullName) -> Option<Job> {
        let of_name = self
            .statics
            .values()
            .filter(|(manifest, _)| key(manifest) == *name);
        let (wanted, leaving): (Vec<_>, Vec<_>) = of_name.partition(|(_, wanted)| *wanted);
        let mirror = self.mirrors.values().find(|m| key_of_mirror(m) == *name);
        let job = |delete: Option<&Mirror>, create| Job {
            namespace: name.0.clone(),
            name: name.1.clone(),
            delete: delete.map(|mirror| mirror.uid.clone()),
            create,
        };
        // The one before goes first, and its mirror tells of it to its end.
        if !self.heard || !leaving.is_empty() {
            return None;
        }
        let Some((manifest, _)) = wanted.first() else {
            return mirror
                .filter(|_| self.whole)
                .map(|mirror| job(Some(mirror), None));
        };
        let wrong = mirror.filter(|mirror| mirror.deleting || mirror.of != hash(manifest));
        if mirror.is_some() && wrong.is_none() {
            return None;
        }
        // Without the node's uid the API server would not let us.
        let node = self.node.as_ref().filter(|node| !node.deleting);
        let create = node.and_then(|node| body(manifest, node));
        (wrong.is_some() || create.is_some()).then(|| job(wrong, create))
    }
}

fn key(manifest: &Manifest) -> FullName {
    (manifest.namespace().to_owned(), manifest.name().to_owned())
}

fn key_of_mirror(mirror: &Mirror) -> FullName {
    (mirror.namespace.clone(), mirror.name.clone())
}

/// What tells a static pod from an edited one.
fn hash(manifest: &Manifest) -> &str {
    manifest
        .annotation(CONFIG_HASH)
        .unwrap_or(manifest.uid().as_str())
}

/// The mirror of a static pod: the pod itself, owned by its node.
fn body(manifest: &Manifest, node: &Node) -> Option<Value> {
    let mut pod: Value = serde_json::from_slice(manifest.raw()).ok()?;
    let fields = pod.as_object_mut()?;
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), "v1".into());
    fields.insert("kind".to_owned(), "Pod".into());
    let metadata = fields.get_mut("metadata")?.as_object_mut()?;
    for given in ["uid", "generation", "resourceVersion", "creationTimestamp"] {
        metadata.remove(given);
    }
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{ "apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": true }]),
    );
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    let annotations = annotations.as_object_mut()?;
    annotations.insert(CONFIG_MIRROR.to_owned(), hash(manifest).into());
    Some(pod)
}

#[cfg(test)]
mod tests;
