//! Mirror pods of static pods: which to create, and which to delete.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polylet_model::hash::fnv1a_32;
use polylet_model::{Manifest, PodUid};
use polylet_schedule::{BackoffPolicy, DueQueue, TokenBucket};
use serde_json::Value;

use super::report::desired::ApiStatus;
use super::shared_status::SharedStatus;
use named_pods::{MirrorConditions, MirroredPod, NamedPods};

mod named_pods;

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

/// Namespace and name.
type FullName = (String, String);

/// All static pods and mirror pods. Times are relative to the start of the process.
#[derive(Default)]
pub(crate) struct MirrorPodManager {
    names: BTreeMap<FullName, NamedPods>,
    static_names: BTreeMap<PodUid, FullName>,
    mirror_names: BTreeMap<PodUid, FullName>,
    conditions: MirrorConditions,
    /// Names that may need a request.
    dirty: BTreeSet<FullName>,
    /// Names whose requests wait after an attempt, and until when.
    waiting: DueQueue<FullName, Duration>,
    /// The rate limit allows no request before this time.
    rate_limited_until: Duration,
    /// Names whose static pods may have another status at the API server than when it was last taken.
    unreported: BTreeSet<FullName>,
}

impl MirrorPodManager {
    /// Sets a static pod, and whether a source still has it; `None` once it is removed.
    pub(crate) fn set_static_pod(&mut self, uid: &PodUid, pod: Option<(Manifest, bool)>) {
        if let Some(name) = self.static_names.remove(uid) {
            self.changed(&name).static_pods.remove(uid);
        }
        if let Some((manifest, desired)) = pod {
            let name = key(&manifest);
            let source = MirroredPod::new(&manifest, desired);
            let static_pods = &mut self.changed(&name).static_pods;
            static_pods.insert(uid.clone(), source);
            self.static_names.insert(uid.clone(), name);
        }
    }

    /// Sets a mirror pod as the watch reports it. It has delivered, so that its name waits no further.
    pub(crate) fn set_mirror(&mut self, uid: &PodUid, mirror: Option<MirrorPod>) {
        if let Some(name) = self.mirror_names.remove(uid) {
            let pods = self.changed(&name);
            pods.attempt.not_before = Duration::ZERO;
            pods.mirrors.remove(uid);
        }
        if let Some(mirror) = mirror {
            let name = (mirror.namespace.clone(), mirror.name.clone());
            let pods = self.changed(&name);
            pods.attempt.not_before = Duration::ZERO;
            pods.mirrors.insert(uid.clone(), mirror);
            self.mirror_names.insert(uid.clone(), name);
        }
    }

    /// The pods of a name, which are about to change.
    fn changed(&mut self, name: &FullName) -> &mut NamedPods {
        self.dirty.insert(name.clone());
        self.unreported.insert(name.clone());
        self.names.entry(name.clone()).or_default()
    }

    /// The number of mirror pods at the API server.
    pub(crate) fn mirror_count(&self) -> usize {
        self.mirror_names.len()
    }

    pub(crate) fn set_node(&mut self, node: Option<NodeRef>) {
        if self.conditions.node != node {
            self.conditions.node = node;
            self.mark_all();
        }
    }

    /// Marks the initial sync of mirror pods as done.
    pub(crate) fn mark_mirrors_synced(&mut self) {
        if !self.conditions.mirrors_synced {
            self.conditions.mirrors_synced = true;
            self.mark_all();
        }
    }

    pub(crate) fn set_pods_synced(&mut self, synced: bool) {
        if self.conditions.pods_synced != synced {
            self.conditions.pods_synced = synced;
            self.mark_all();
        }
    }

    fn mark_all(&mut self) {
        self.dirty.extend(self.names.keys().cloned());
    }

    /// The status at the API server of each static pod that may have another one than at the last call: that
    /// of its mirror pod. Statuses that mirror pods have from this node are shared with it: `own` is that of
    /// a static pod.
    pub(crate) fn take_api_statuses<'a>(
        &mut self,
        own: impl Fn(&PodUid) -> Option<&'a SharedStatus>,
    ) -> Vec<(PodUid, Option<ApiStatus>)> {
        let mut statuses = Vec::new();
        for name in std::mem::take(&mut self.unreported) {
            if let Some(pods) = self.names.get_mut(&name) {
                statuses.extend(pods.api_statuses(&own));
            }
        }
        statuses
    }

    /// Keeps the status of a static pod's mirror pod as JSON alone, until it is read again. It shares that
    /// of `own` if it is equal.
    pub(crate) fn drop_parsed(&mut self, uid: &str, own: &SharedStatus) {
        let name = self.static_names.get(uid);
        if let Some(pods) = name.and_then(|name| self.names.get_mut(name)) {
            pods.drop_parsed(uid, own);
        }
    }

    /// When the next request is due, unless something changes before.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        if !self.dirty.is_empty() {
            return Some(self.rate_limited_until);
        }
        let due = self.waiting.next_due()?;
        Some(due.max(self.rate_limited_until))
    }

    /// The requests to send now, by name.
    pub(crate) fn take_due(
        &mut self,
        rate_limit: &mut TokenBucket<Duration>,
        now: Duration,
    ) -> Vec<MirrorRequest> {
        let mut requests = Vec::new();
        if now < self.rate_limited_until {
            return requests;
        }
        while let Some(name) = self.waiting.pop_due(now) {
            self.dirty.insert(name);
        }
        while let Some(name) = self.dirty.pop_first() {
            match self.request(&name, rate_limit, now) {
                Ok(request) => requests.extend(request),
                Err(at) => {
                    self.dirty.insert(name);
                    self.rate_limited_until = at;
                    break;
                }
            }
        }
        requests
    }

    /// The request of a name, to be sent now; `None` if it needs none, or not now.
    ///
    /// # Errors
    /// The rate limit allows none before this time.
    fn request(
        &mut self,
        name: &FullName,
        rate_limit: &mut TokenBucket<Duration>,
        now: Duration,
    ) -> Result<Option<MirrorRequest>, Duration> {
        self.waiting.cancel(name);
        let Some(pods) = self.names.get_mut(name) else {
            return Ok(None);
        };
        let Some(request) = pods.request(name, &self.conditions) else {
            pods.forget_attempt();
            if pods.is_unused() {
                self.names.remove(name);
            }
            return Ok(None);
        };
        if pods.attempt.in_flight {
            return Ok(None);
        }
        let not_before = pods.attempt.not_before;
        if not_before > now {
            self.waiting.set(name.clone(), not_before);
            return Ok(None);
        }
        rate_limit.try_take(now)?;
        pods.attempt.in_flight = true;
        Ok(Some(request))
    }

    /// Records the result of a request. After a success the watch is to deliver the change.
    pub(crate) fn on_completed(&mut self, request: &MirrorRequest, succeeded: bool, now: Duration) {
        let name = (request.namespace.clone(), request.name.clone());
        let attempt = &mut self.names.entry(name.clone()).or_default().attempt;
        self.dirty.insert(name);
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
}

fn key(manifest: &Manifest) -> FullName {
    (manifest.namespace().to_owned(), manifest.name().to_owned())
}

#[cfg(test)]
mod tests;
