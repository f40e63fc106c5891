//! The published statuses, and which pods are to be computed again.

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::PodUid;

use crate::core::status::{PodVolumeStatus, VolumeStatus};

/// The last published status of each pod.
#[derive(Debug, Default)]
pub(super) struct PublishedStatuses {
    statuses: BTreeMap<PodUid, PodVolumeStatus>,
    changed: BTreeSet<PodUid>,
}

impl PublishedStatuses {
    /// The last status of a pod.
    pub(super) fn get(&self, uid: &str) -> Option<&PodVolumeStatus> {
        self.statuses.get(uid)
    }

    /// The last status of all volumes of a pod.
    pub(super) fn volumes(&self, uid: &str) -> &[VolumeStatus] {
        self.get(uid)
            .map(|status| status.volumes.as_slice())
            .unwrap_or_default()
    }

    /// Marks a pod whose status may have changed.
    pub(super) fn mark_changed(&mut self, uid: &PodUid) {
        self.changed.insert(uid.clone());
    }

    /// Takes the marked pods.
    pub(super) fn take_changed(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.changed)
    }

    /// Stores the status of a pod; returns whether it has changed.
    pub(super) fn set(&mut self, uid: &PodUid, status: Option<&PodVolumeStatus>) -> bool {
        if self.get(uid) == status {
            return false;
        }
        match status {
            Some(status) => drop(self.statuses.insert(uid.clone(), status.clone())),
            None => drop(self.statuses.remove(uid)),
        }
        true
    }
}
