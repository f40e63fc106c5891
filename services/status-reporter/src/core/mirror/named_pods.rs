//! The static pods and mirror pods of one full name, and the request that they need.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use polylet_model::constants::pod_annotation::{CONFIG_HASH, CONFIG_MIRROR};
use polylet_model::{Manifest, PodUid};
use serde_json::{Value, json};

use super::{FullName, MirrorPod, MirrorRequest, NodeRef};
use crate::core::report::desired::ApiStatus;
use crate::core::shared_status::SharedStatus;

/// What a mirror pod needs of its static pod.
pub(super) struct MirroredPod {
    /// The manifest as JSON.
    raw: Bytes,
    /// Changes with the manifest.
    hash: String,
    /// Whether a source still has it.
    desired: bool,
}

impl MirroredPod {
    pub(super) fn new(manifest: &Manifest, desired: bool) -> Self {
        let hash = manifest.annotation(CONFIG_HASH);
        MirroredPod {
            raw: manifest.raw().clone(),
            hash: hash.unwrap_or(manifest.uid().as_str()).to_owned(),
            desired,
        }
    }

    /// Whether a mirror pod of the same full name has the status of this pod.
    fn is_mirrored_by(&self, mirror: &MirrorPod) -> bool {
        !mirror.deleting && mirror.source_hash == self.hash
    }
}

/// The attempts to make the mirror pod what it is to be.
#[derive(Default)]
pub(super) struct MirrorAttempt {
    pub(super) in_flight: bool,
    /// The next one does not start before this time.
    pub(super) not_before: Duration,
    /// Failures in a row.
    pub(super) failures: u32,
}

/// The static pods and mirror pods of one full name.
#[derive(Default)]
pub(super) struct NamedPods {
    pub(super) static_pods: BTreeMap<PodUid, MirroredPod>,
    pub(super) mirrors: BTreeMap<PodUid, MirrorPod>,
    pub(super) attempt: MirrorAttempt,
}

/// What all mirror pods depend on.
#[derive(Default)]
pub(super) struct MirrorConditions {
    pub(super) node: Option<NodeRef>,
    /// Mirror pods have synced: an unknown one does not exist.
    pub(super) mirrors_synced: bool,
    /// This node's pods have synced: a mirror pod without a static pod is an orphan.
    pub(super) pods_synced: bool,
}

impl NamedPods {
    /// The request that this name needs.
    pub(super) fn request(
        &self,
        name: &FullName,
        conditions: &MirrorConditions,
    ) -> Option<MirrorRequest> {
        // A terminating pod of this name keeps its mirror pod to its end.
        if !conditions.mirrors_synced || self.static_pods.values().any(|pod| !pod.desired) {
            return None;
        }
        let mirror = self.mirrors.values().next();
        let request = |delete: Option<&MirrorPod>, create| MirrorRequest {
            namespace: name.0.clone(),
            name: name.1.clone(),
            delete: delete.map(|mirror| mirror.uid.clone()),
            create,
        };
        let Some(pod) = self.static_pods.values().next() else {
            return mirror
                .filter(|_| conditions.pods_synced)
                .map(|mirror| request(Some(mirror), None));
        };
        let outdated = mirror.filter(|mirror| !pod.is_mirrored_by(mirror));
        if mirror.is_some() && outdated.is_none() {
            return None;
        }
        // The API server rejects mirror pods without their node as owner.
        let node = conditions.node.as_ref().filter(|node| !node.deleting);
        let create = node.and_then(|node| body(pod, node));
        (outdated.is_some() || create.is_some()).then(|| request(outdated, create))
    }

    /// Forgets failed attempts, as no request is needed. One in flight is completed later.
    pub(super) fn forget_attempt(&mut self) {
        if !self.attempt.in_flight {
            self.attempt = MirrorAttempt::default();
        }
    }

    /// Whether there is nothing left to remember.
    pub(super) fn is_unused(&self) -> bool {
        self.static_pods.is_empty() && self.mirrors.is_empty() && !self.attempt.in_flight
    }

    /// The status at the API server of each static pod, which is shared with `own` if it is equal.
    pub(super) fn api_statuses<'a>(
        &mut self,
        own: impl Fn(&PodUid) -> Option<&'a SharedStatus>,
    ) -> impl Iterator<Item = (PodUid, Option<ApiStatus>)> {
        let mirrors = &mut self.mirrors;
        self.static_pods.iter().map(move |(uid, pod)| {
            let mut mirrors = mirrors.values_mut();
            let mirror = mirrors.find(|mirror| pod.is_mirrored_by(mirror));
            let status = mirror.and_then(|mirror| {
                let status = mirror.status.clone()?.shared_with(own(uid));
                mirror.status = Some(status.clone());
                let uid = mirror.uid.clone();
                Some(ApiStatus { uid, status })
            });
            (uid.clone(), status)
        })
    }

    /// Keeps the status of the static pod's mirror pod as JSON alone; it shares that of `own` if it is equal.
    pub(super) fn drop_parsed(&mut self, uid: &str, own: &SharedStatus) {
        let pod = self.static_pods.get(uid);
        let mut mirrors = self.mirrors.values_mut();
        let mirror = pod.and_then(|pod| mirrors.find(|mirror| pod.is_mirrored_by(mirror)));
        if let Some(status) = mirror.and_then(|mirror| mirror.status.as_mut()) {
            *status = status.unparsed().shared_with([own]);
        }
    }
}

/// The mirror pod of a static pod: the same pod, owned by its node.
pub(super) fn body(source: &MirroredPod, node: &NodeRef) -> Option<Value> {
    let mut pod: Value = serde_json::from_slice(&source.raw).ok()?;
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
    annotations.insert(CONFIG_MIRROR.to_owned(), source.hash.as_str().into());
    Some(pod)
}
