//! The stores behind the streams of pods, and the objects that the pods name.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{MirrorPod, Pod};

use super::super::object_references::ObjectReferences;
use crate::core::ObjectId;

/// Published pods. Clones share them.
#[derive(Clone)]
pub(crate) struct PodStores {
    /// Pods without status, which a status patch does not change.
    pub(crate) pods: Store<PodUid, Pod>,
    pub(crate) pods_with_status: Store<PodUid, Pod>,
    pub(crate) mirror_pods: Store<PodUid, MirrorPod>,
    references: ObjectReferences,
}

impl PodStores {
    pub(crate) fn new(incarnation: &str) -> PodStores {
        PodStores {
            pods: Store::new(incarnation),
            pods_with_status: Store::new(incarnation),
            mirror_pods: Store::new(incarnation),
            references: ObjectReferences::default(),
        }
    }

    pub(crate) fn mark_synced(&self) {
        self.pods.mark_synced();
        self.pods_with_status.mark_synced();
        self.mirror_pods.mark_synced();
    }

    /// Publishes a pod.
    pub(crate) fn upsert(&self, uid: PodUid, pod: Pod) {
        self.add_references(&uid, &pod);
        self.pods.upsert(uid.clone(), without_status(&pod));
        self.pods_with_status.upsert(uid, pod);
    }

    /// Removes a pod; returns whether it existed.
    pub(crate) fn remove(&self, uid: &PodUid) -> bool {
        self.pods.remove(uid);
        let existed = self.pods_with_status.remove(uid);
        self.references.change(|references| references.remove(uid));
        existed
    }

    /// Publishes all pods, in this order.
    pub(crate) fn replace(&self, pods: Vec<(PodUid, Pod)>) {
        for (uid, pod) in &pods {
            self.add_references(uid, pod);
        }
        let plain = pods.iter();
        let plain = plain.map(|(uid, pod)| (uid.clone(), without_status(pod)));
        self.pods.replace(plain);
        self.pods_with_status.replace(pods);
        self.pods.mark_synced();
        self.pods_with_status.mark_synced();
        self.references
            .change(|references| references.retain(|uid| self.pods.contains(uid)));
    }

    /// Records the objects that a pod names, which may be published later.
    pub(crate) fn add_references(&self, uid: &PodUid, pod: &Pod) {
        self.references
            .change(|references| references.set(uid, &pod.digest, &pod.manifest));
    }

    /// The objects that pods and cached objects name.
    pub(in crate::cluster) fn references(&self) -> ObjectReferences {
        self.references.clone()
    }

    /// Whether an object is named, or may be: until all pods are known, any may be named.
    pub(crate) fn is_referenced(&self, object: &ObjectId) -> bool {
        !self.pods.has_synced() || self.references.contains(object)
    }

    /// Waits until there are objects that are not named any more, and returns them once.
    pub(crate) async fn released_objects(&self) -> BTreeSet<Arc<ObjectId>> {
        self.references.released().await
    }
}

fn without_status(pod: &Pod) -> Pod {
    Pod {
        reported_status: Bytes::new(),
        ..pod.clone()
    }
}
