//! Mirror pods of static pods: which to create, and which to delete.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::constants::pod_annotation::{CONFIG_HASH, CONFIG_MIRROR};
use polylet_model::hash::fnv1a_32;
use polylet_model::{Manifest, PodUid};
use polylet_schedule::{BackoffPolicy, TokenBucket};
use serde_json::{Value, json};

use super::report::desired::ApiStatus;
use super::shared_status::SharedStatus;

/// How long the watch may take to deliver what was created or deleted.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Delays after failures.
const FAILED: BackoffPolicy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60));

/// A mirror pod at the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MirrorPod {
    pub(crate) uid: PodUid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The `config.mirror` annotation: hash of the static pod that it was created for.
    pub(crate) source_hash: String,
    pub(crate) deleting: bool,
    pub(crate) status: Option<SharedStatus>,
}

/// This node's object at the API server, the owner of mirror pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeRef {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) deleting: bool,
}

/// A request for one full name: a deletion, a creation, or one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MirrorRequest {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The uid of the mirror pod to delete.
    pub(crate) delete: Option<PodUid>,
    /// The mirror pod to create.
    pub(crate) create: Option<Value>,
}

type FullName = (String, String);

#[derive(Default)]
struct MirrorAttempt {
    in_flight: bool,
    not_before: Duration,
    failures: u32,
}

/// All static pods and mirror pods. Times are relative to the start of the process.
#[derive(Default)]
pub(crate) struct MirrorPodManager {
    /// Static pods by uid, and whether a source still has them.
    static_pods: BTreeMap<PodUid, (Manifest, bool)>,
    mirrors: BTreeMap<PodUid, MirrorPod>,
    node: Option<NodeRef>,
    /// Mirror pods have synced: an unknown one does not exist.
    mirrors_synced: bool,
    /// This node's pods have synced: a mirror pod without a static pod is an orphan.
    pods_synced: bool,
    attempts: BTreeMap<FullName, MirrorAttempt>,
    changed: bool,
    /// When the next request is due.
    next: Option<Duration>,
}

impl MirrorPodManager {
    /// Sets a static pod, and whether a source still has it; `None` once it is removed.
    pub(crate) fn set_static_pod(&mut self, uid: &PodUid, pod: Option<(Manifest, bool)>) {
        self.changed = true;
        match pod {
            Some(pod) => self.static_pods.insert(uid.clone(), pod),
            None => self.static_pods.remove(uid),
        };
    }

    /// Sets a mirror pod as the watch reports it.
    pub(crate) fn set_mirror(&mut self, uid: &PodUid, mirror: Option<MirrorPod>) {
        self.changed = true;
        let known = self.mirrors.get(uid);
        let name = mirror.as_ref().or(known).map(mirror_key);
        if let Some(attempt) = name.and_then(|name| self.attempts.get_mut(&name)) {
            // The watch has delivered: no further wait.
            attempt.not_before = Duration::ZERO;
        }
        match mirror {
            Some(mirror) => self.mirrors.insert(uid.clone(), mirror),
            None => self.mirrors.remove(uid),
        };
    }

    /// The number of mirror pods at the API server.
    pub(crate) fn mirror_count(&self) -> usize {
        self.mirrors.len()
    }

    pub(crate) fn set_node(&mut self, node: Option<NodeRef>) {
        self.changed = true;
        self.node = node;
    }

    /// Marks the initial sync of mirror pods as done.
    pub(crate) fn mark_mirrors_synced(&mut self) {
        self.changed |= !self.mirrors_synced;
        self.mirrors_synced = true;
    }

    pub(crate) fn set_pods_synced(&mut self, synced: bool) {
        self.changed |= self.pods_synced != synced;
        self.pods_synced = synced;
    }

    /// Shares the memory of statuses that mirror pods have from this node. `own` is that of a static pod.
    pub(crate) fn share_statuses<'a>(&mut self, own: impl Fn(&PodUid) -> Option<&'a SharedStatus>) {
        for (uid, (manifest, _)) in &self.static_pods {
            let mut mirrors = self.mirrors.values_mut();
            let mirror = mirrors.find(|mirror| is_mirror_of(mirror, manifest));
            if let Some(status) = mirror.and_then(|mirror| mirror.status.as_mut()) {
                *status = status.clone().shared_with(own(uid));
            }
        }
    }

    /// The status at the API server of each static pod: that of its mirror pod.
    pub(crate) fn api_statuses(&self) -> impl Iterator<Item = (&PodUid, Option<ApiStatus>)> {
        self.static_pods.iter().map(|(uid, (manifest, _))| {
            let mut mirrors = self.mirrors.values();
            let mirror = mirrors.find(|mirror| is_mirror_of(mirror, manifest));
            let status = mirror.and_then(|mirror| {
                Some(ApiStatus {
                    uid: mirror.uid.clone(),
                    status: mirror.status.clone()?,
                })
            });
            (uid, status)
        })
    }

    /// When the next request is due, unless something changes before.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.next
    }

    /// The requests to send now.
    pub(crate) fn take_due(
        &mut self,
        rate_limit: &mut TokenBucket<Duration>,
        now: Duration,
    ) -> Vec<MirrorRequest> {
        if !self.changed && self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.changed = false;
        self.next = None;
        let mut requests = Vec::new();
        for name in self.names() {
            let Some(request) = self.request(&name) else {
                // An attempt in flight is completed later.
                self.attempts
                    .retain(|of, attempt| *of != name || attempt.in_flight);
                continue;
            };
            let attempt = self.attempts.entry(name).or_default();
            if attempt.in_flight {
                continue;
            }
            let allowed = if attempt.not_before > now {
                Err(attempt.not_before)
            } else {
                rate_limit.try_take(now)
            };
            match allowed {
                Ok(()) => {
                    attempt.in_flight = true;
                    requests.push(request);
                }
                Err(at) => self.next = Some(self.next.map_or(at, |next| next.min(at))),
            }
        }
        requests
    }

    /// Records the result of a request. After a success the watch is to deliver the change.
    pub(crate) fn on_completed(&mut self, request: &MirrorRequest, succeeded: bool, now: Duration) {
        self.changed = true;
        let name = (request.namespace.clone(), request.name.clone());
        let attempt = self.attempts.entry(name).or_default();
        attempt.in_flight = false;
        if succeeded {
            attempt.failures = 0;
            attempt.not_before = now + WATCH_TIMEOUT;
            return;
        }
        attempt.failures = attempt.failures.saturating_add(1);
        let drawn = fnv1a_32(format!("{} {}", request.name, attempt.failures).as_bytes());
        let share = f64::from(drawn) / f64::from(u32::MAX);
        attempt.not_before = now + FAILED.delay_with_jitter(attempt.failures, share / 2.0);
    }

    fn names(&self) -> Vec<FullName> {
        let static_pods = self.static_pods.values().map(|(manifest, _)| key(manifest));
        let mirrors = self.mirrors.values().map(mirror_key);
        let attempts = self.attempts.keys().cloned();
        let mut names: Vec<_> = static_pods.chain(mirrors).chain(attempts).collect();
        names.sort();
        names.dedup();
        names
    }

    fn request(&self, name: &FullName) -> Option<MirrorRequest> {
        let of_name = self
            .static_pods
            .values()
            .filter(|(manifest, _)| key(manifest) == *name);
        let (desired, terminating): (Vec<_>, Vec<_>) = of_name.partition(|(_, desired)| *desired);
        let mirror = self.mirrors.values().find(|m| mirror_key(m) == *name);
        let request = |delete: Option<&MirrorPod>, create| MirrorRequest {
            namespace: name.0.clone(),
            name: name.1.clone(),
            delete: delete.map(|mirror| mirror.uid.clone()),
            create,
        };
        // A terminating pod of this name keeps its mirror pod to its end.
        if !self.mirrors_synced || !terminating.is_empty() {
            return None;
        }
        let Some((manifest, _)) = desired.first() else {
            return mirror
                .filter(|_| self.pods_synced)
                .map(|mirror| request(Some(mirror), None));
        };
        let outdated =
            mirror.filter(|mirror| mirror.deleting || mirror.source_hash != hash(manifest));
        if mirror.is_some() && outdated.is_none() {
            return None;
        }
        // The API server rejects mirror pods without their node as owner.
        let node = self.node.as_ref().filter(|node| !node.deleting);
        let create = node.and_then(|node| body(manifest, node));
        (outdated.is_some() || create.is_some()).then(|| request(outdated, create))
    }
}

fn key(manifest: &Manifest) -> FullName {
    (manifest.namespace().to_owned(), manifest.name().to_owned())
}

fn mirror_key(mirror: &MirrorPod) -> FullName {
    (mirror.namespace.clone(), mirror.name.clone())
}

/// Whether a mirror pod has the status of a static pod.
fn is_mirror_of(mirror: &MirrorPod, manifest: &Manifest) -> bool {
    !mirror.deleting && mirror.source_hash == hash(manifest) && mirror_key(mirror) == key(manifest)
}

/// The hash that changes with a static pod's manifest.
fn hash(manifest: &Manifest) -> &str {
    manifest
        .annotation(CONFIG_HASH)
        .unwrap_or(manifest.uid().as_str())
}

/// The mirror pod of a static pod: the same pod, owned by its node.
fn body(manifest: &Manifest, node: &NodeRef) -> Option<Value> {
    let mut pod: Value = serde_json::from_slice(manifest.raw()).ok()?;
    let fields = pod.as_object_mut()?;
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), "v1".into());
    fields.insert("kind".to_owned(), "Pod".into());
    let metadata = fields.get_mut("metadata")?.as_object_mut()?;
    for assigned in ["uid", "generation", "resourceVersion", "creationTimestamp"] {
        metadata.remove(assigned);
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
