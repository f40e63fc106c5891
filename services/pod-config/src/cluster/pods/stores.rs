//! The stores behind the streams of pods.

use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::podconfig::v1::{MirrorPod, Pod};

/// Published pods.
#[derive(Clone)]
pub(crate) struct PodStores {
    /// Pods without status, which a status patch does not change.
    pub(crate) pods: Store<PodUid, Pod>,
    pub(crate) pods_with_status: Store<PodUid, Pod>,
    pub(crate) mirror_pods: Store<PodUid, MirrorPod>,
}

impl PodStores {
    pub(crate) fn new(incarnation: &str) -> PodStores {
        PodStores {
            pods: Store::new(incarnation),
            pods_with_status: Store::new(incarnation),
            mirror_pods: Store::new(incarnation),
        }
    }

    pub(crate) fn mark_synced(&self) {
        self.pods.mark_synced();
        self.pods_with_status.mark_synced();
        self.mirror_pods.mark_synced();
    }
}
