//! Pods that are bound to this node, and mirror pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use polylet_kit::trace_context;
use polylet_model::PodUid;
use polylet_wire::podconfig::v1::{ManifestError, MirrorPod, Pod, PodSource};
use polylet_wire::time::to_wire;
use serde_json::Value;
use tokio::sync::watch;

use super::api_health::ApiHealth;
use super::request::ApiRequestError;
use super::watcher::{EventHandler, WatchTarget};
use crate::convert;
use crate::core::cluster::pod::{self, ApiPod, Classified, PublishedManifest};
use crate::core::cluster::state::{PersistedPod, PodRecordKey};
use crate::core::field;
use crate::persist::KeyedLog;
use crate::trace::{annotation, new_api_pod_trace};

mod persisted;
mod stores;
#[cfg(test)]
mod tests;

pub(crate) use persisted::PodPersister;
use persisted::{ChangeKind, RestoredPods, from_persisted};
pub(crate) use stores::PodStores;

/// All pods of the node.
pub(crate) fn watch_target(node: &str) -> WatchTarget {
    WatchTarget {
        path: "/api/v1/pods".to_owned(),
        selector: Some(("spec.nodeName", node.to_owned())),
        name: None,
    }
}

/// Publishes pods, and determines the API server's health.
pub(crate) struct PodHandler {
    stores: PodStores,
    health: ApiHealth,
    log: KeyedLog<PodRecordKey>,
    errors: watch::Sender<Vec<ManifestError>>,
    /// State of an earlier process, until the API server responds.
    restored: RestoredPods,
    /// Invalid pods by uid and name.
    invalid: BTreeMap<(String, String), ManifestError>,
}

impl PodHandler {
    pub(crate) fn new(
        stores: PodStores,
        health: ApiHealth,
        log: KeyedLog<PodRecordKey>,
        errors: watch::Sender<Vec<ManifestError>>,
        node: &str,
    ) -> PodHandler {
        let restored = RestoredPods::load(&log, node);
        PodHandler {
            stores,
            health,
            log,
            errors,
            restored,
            invalid: BTreeMap::new(),
        }
    }

    /// The pod as published, or as restored.
    fn current(&self, uid: &str) -> Option<Pod> {
        let published = self.stores.pods_with_status.get(uid);
        published.or_else(|| Some(from_persisted(self.restored.pods.get(uid)?, None)))
    }

    /// Whether it is known of an object that its deletion was requested.
    fn is_deleted(&self, object: &Value) -> bool {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        let current = uid.and_then(|uid| self.current(uid));
        current.is_some_and(|pod| pod::is_deleted(&pod.manifest))
    }

    /// What a received object changes: a pod or a mirror pod.
    fn classify(&mut self, object: Value) -> Option<ObjectChange> {
        let mut current = None;
        let classified = pod::classify(
            object,
            |uid| {
                current = self.current(uid);
                current.as_ref().map(|pod| PublishedManifest {
                    manifest: pod.manifest.clone(),
                    digest: pod.digest.clone(),
                })
            },
            Timestamp::now(),
        );
        match classified {
            Classified::Pod(pod) => {
                self.invalid.retain(|(uid, _), _| *uid != pod.uid);
                let pod = with_cause(pod, current.as_ref());
                let kind = ChangeKind::new(&pod, current.as_ref());
                Some(ObjectChange::Pod(pod, kind))
            }
            Classified::Mirror(mirror) => {
                self.invalid.retain(|(uid, _), _| *uid != mirror.uid);
                Some(ObjectChange::Mirror(convert::mirror_pod(mirror)))
            }
            Classified::Invalid { name, uid, error } => self.handle_invalid(name, uid, error),
        }
    }

    /// Reports an invalid pod; its last valid version stays published.
    fn handle_invalid(
        &mut self,
        name: String,
        uid: String,
        mut error: field::Error,
    ) -> Option<ObjectChange> {
        let current = self.current(&uid);
        if current.is_some() {
            error.message += "; keeping the last valid version";
        }
        let origin = format!("API server, Pod {name}");
        let now = Timestamp::now();
        let error = convert::manifest_error(PodSource::Api, &origin, &error, now);
        let key = (uid, name);
        let reported = self.invalid.get(&key);
        if reported.is_none_or(|reported| reported.message != error.message) {
            let (field, error_message) = (&error.field, &error.message);
            tracing::warn!(
                pod = key.1,
                field,
                error = error_message,
                "invalid pod from API server"
            );
            self.invalid.insert(key, error);
        }
        current.map(|pod| {
            let stale_since = None;
            ObjectChange::Pod(Pod { stale_since, ..pod }, ChangeKind::None)
        })
    }

    fn publish(&mut self, pod: Pod, kind: ChangeKind) {
        let uid = uid_of(&pod);
        if !self.stores.pods_with_status.contains(&uid) {
            log_accepted(&pod);
        }
        self.stores.upsert(uid.clone(), pod);
        self.schedule_persist(uid, kind);
    }

    /// Schedules the write of a pod; called after it is published, since the writer reads the store.
    fn schedule_persist(&self, uid: PodUid, kind: ChangeKind) {
        match kind {
            ChangeKind::None => {}
            ChangeKind::Status => self.log.schedule_lazy(PodRecordKey::Pod(uid)),
            ChangeKind::Manifest => self.log.schedule(PodRecordKey::Pod(uid)),
        }
    }

    fn publish_errors(&self) {
        let mut errors: Vec<ManifestError> = self.health.manifest_error().into_iter().collect();
        errors.extend(self.invalid.values().cloned());
        self.errors.send_if_modified(|published| {
            let changed = *published != errors;
            *published = errors;
            changed
        });
    }

    fn mark_available(&mut self) {
        if self.health.outage_since().is_some() {
            self.log.schedule_lazy(PodRecordKey::Outage);
        }
        self.health.recovered();
        self.publish_errors();
    }

    /// Publishes the restored pods while the API server is unavailable, so that they run and do not
    /// count as orphans.
    fn publish_restored(&mut self) {
        if self.stores.pods.has_synced() || self.restored.pods.is_empty() {
            return;
        }
        let restored = std::mem::take(&mut self.restored);
        let since = restored.outage_since.unwrap_or_else(Timestamp::now);
        let count = restored.pods.len();
        tracing::warn!(count, %since, "API server is unavailable; running its last known pods");
        let age = |pod: &PersistedPod| {
            let created = pod::parse_creation_timestamp(&pod.manifest);
            (created, pod.uid.as_str().into())
        };
        let ages = restored.pods.values().map(age).collect();
        let pod = |(uid, pod): (PodUid, PersistedPod)| (uid, from_persisted(&pod, Some(since)));
        let pods = restored.pods.into_iter().map(pod).collect();
        self.replace(ages, pods);
    }

    /// Publishes all pods, the oldest first: when the node has not the resources for all, the oldest
    /// are admitted, as by the kubelet.
    fn replace(
        &mut self,
        mut ages: Vec<(Option<Timestamp>, PodUid)>,
        mut pods_by_uid: BTreeMap<PodUid, Pod>,
    ) {
        ages.sort();
        let pods = ages.into_iter();
        let pods = pods.filter_map(|(_, uid)| pods_by_uid.remove_entry(&uid));
        self.stores.replace(pods.collect());
    }
}

impl EventHandler for PodHandler {
    async fn handle_list(&mut self, objects: &mut (dyn Iterator<Item = Value> + Send)) {
        let (mut pods, mut mirror_pods) = (BTreeMap::new(), BTreeMap::new());
        let mut ages = Vec::new();
        let mut changes = Vec::new();
        let invalid_before: BTreeSet<(String, String)> = self.invalid.keys().cloned().collect();
        let mut listed = BTreeSet::new();
        for object in objects {
            if let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) {
                listed.insert(uid.to_owned());
            }
            let created = pod::creation_timestamp(&object);
            match self.classify(object) {
                Some(ObjectChange::Pod(pod, kind)) => {
                    let uid = uid_of(&pod);
                    self.stores.add_references(&uid, &pod);
                    changes.push((uid.clone(), kind));
                    ages.push((created, uid.clone()));
                    pods.insert(uid, pod);
                }
                Some(ObjectChange::Mirror(mirror)) => {
                    mirror_pods.insert(mirror_uid(&mirror), mirror);
                }
                None => {}
            }
            // Each pod may be a megabyte: other tasks run in between.
            tokio::task::yield_now().await;
        }
        self.invalid
            .retain(|key, _| !invalid_before.contains(key) || listed.contains(&key.0));
        let published = self.stores.pods_with_status.snapshot();
        for (uid, pod) in &pods {
            if !published.contains_key(uid) {
                log_accepted(pod);
            }
        }
        let removed = published.iter().filter(|(uid, _)| !pods.contains_key(*uid));
        removed.for_each(|(_, pod)| log_removed(pod));
        let restored = std::mem::take(&mut self.restored).pods;
        let gone = published.keys().chain(restored.keys());
        let gone = gone.filter(|uid| !pods.contains_key(*uid));
        changes.extend(gone.map(|uid| (uid.clone(), ChangeKind::Manifest)));
        self.replace(ages, pods);
        for (uid, kind) in changes {
            self.schedule_persist(uid, kind);
        }
        self.stores.mirror_pods.replace(mirror_pods);
        self.stores.mirror_pods.mark_synced();
        // Creates the log, if it cannot be appended to.
        self.log.schedule(PodRecordKey::Outage);
        self.mark_available();
    }

    fn handle_upsert(&mut self, object: Value) {
        if pod::is_about_to_go(&object) && self.is_deleted(&object) {
            return;
        }
        match self.classify(object) {
            Some(ObjectChange::Pod(pod, kind)) => self.publish(pod, kind),
            Some(ObjectChange::Mirror(mirror)) => {
                let uid = mirror_uid(&mirror);
                // The annotation may have been added to a pod.
                if self.stores.remove(&uid) {
                    self.log.schedule(PodRecordKey::Pod(uid.clone()));
                }
                self.stores.mirror_pods.upsert(uid, mirror);
            }
            None => {}
        }
        self.publish_errors();
    }

    fn handle_delete(&mut self, object: Value) {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        let uid = PodUid::from(uid.unwrap_or_default());
        if let Some(pod) = self.stores.pods_with_status.get(&uid) {
            log_removed(&pod);
            self.stores.remove(&uid);
            self.log.schedule(PodRecordKey::Pod(uid.clone()));
        }
        self.stores.mirror_pods.remove(&uid);
        self.invalid.retain(|(of, _), _| uid != **of);
        self.publish_errors();
    }

    fn handle_watch_started(&mut self) {
        self.mark_available();
    }

    fn handle_error(&mut self, error: &ApiRequestError) {
        let started = self.health.outage_since().is_none();
        let now = self.restored.outage_since.unwrap_or_else(Timestamp::now);
        self.health.record_failure(error, now);
        self.publish_restored();
        if started && self.stores.pods.has_synced() {
            // The start of the outage is the same after a restart.
            self.log.schedule_lazy(PodRecordKey::Outage);
        }
        self.publish_errors();
    }

    fn handle_slow_start(&mut self) {
        self.publish_restored();
    }

    fn ignores_outage(&self) -> bool {
        true
    }
}

enum ObjectChange {
    Pod(Pod, ChangeKind),
    Mirror(MirrorPod),
}

/// The pod with its cause: a new trace for each new manifest.
fn with_cause(pod: ApiPod, current: Option<&Pod>) -> Pod {
    // Otherwise the first report of the pod's own status would be a change for every watcher.
    let first_start_time = current.map(|current| current.start_time);
    let is_known = current.is_some();
    let current = current.filter(|current| current.digest == pod.digest);
    let cause = match current {
        Some(current) => current.cause.clone().unwrap_or_default(),
        None => {
            let span = new_api_pod_trace(&pod, is_known);
            let mut cause = trace_context::first_cause(&span, annotation(&pod.manifest).as_deref());
            cause.observed_at = Some(to_wire(Timestamp::now()));
            cause
        }
    };
    let pod = convert::api_pod(pod, cause);
    Pod {
        start_time: first_start_time.unwrap_or(pod.start_time),
        ..pod
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    let pod = pod.r#ref.as_ref();
    pod.map(|pod| pod.uid.as_str().into()).unwrap_or_default()
}

fn mirror_uid(mirror: &MirrorPod) -> PodUid {
    let pod = mirror.r#ref.as_ref();
    pod.map(|pod| pod.uid.as_str().into()).unwrap_or_default()
}

fn log_accepted(pod: &Pod) {
    if let Some(pod) = &pod.r#ref {
        let name = format!("{}/{}", pod.namespace, pod.name);
        tracing::info!(pod = name, pod_uid = pod.uid, "pod accepted");
    }
}

fn log_removed(pod: &Pod) {
    if let Some(pod) = &pod.r#ref {
        let name = format!("{}/{}", pod.namespace, pod.name);
        tracing::info!(pod = name, pod_uid = pod.uid, "pod removed");
    }
}
