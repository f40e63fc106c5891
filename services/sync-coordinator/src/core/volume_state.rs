//! A pod's volumes as volume-manager reports them.

use std::rc::Rc;

use jiff::Timestamp;

/// The state of one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedVolume {
    /// Its name in the pod.
    pub name: String,
    /// Whether it is mounted.
    pub mounted: bool,
    /// Not mounted, but expected within moments.
    pub imminent: bool,
    /// Whether nothing of it is left on the node.
    pub gone: bool,
    /// Its path on the node.
    pub host_path: String,
    /// What it waits for, or the last error.
    pub message: String,
    /// The reason for rejecting the pod because of this volume; empty otherwise.
    pub rejection_reason: String,
    /// A supplemental group of the pod's containers that the volume requires.
    pub supplemental_group: Option<i64>,
}

/// The declaration of a pod's volumes and their reported state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodVolumeState {
    /// The digest of the manifest that was declared by this instance to this instance of
    /// volume-manager.
    pub declared_digest: Option<String>,
    /// Sequence number of the last declaration.
    pub declared_sequence: u64,
    /// The last report, with its sequence number, shared with steps in flight; `None` when
    /// volume-manager has nothing of the pod.
    pub reported: Option<(u64, Rc<[ObservedVolume]>)>,
    /// Whether the release was accepted.
    pub released: bool,
    /// Time of the release.
    pub released_at: Option<Timestamp>,
    /// The call in flight was made as a previous client incarnation, or to a previous instance of
    /// volume-manager: its result is ignored.
    pub in_flight_is_stale: bool,
}
