//! The published status of volumes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::actual_state::ActualPod;
use super::blocked::Blocked;
use super::desired_state::DesiredVolumes;
use super::layout::VolumeKey;
use super::pod::PodName;
use super::spec::PodVolumeSpec;
use super::warning_repeat::WarningRepeat;

/// The phase of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumePhase {
    /// Not mounted yet.
    Waiting,
    /// Not mounted yet; expected within a moment.
    Imminent,
    /// Usable by containers.
    Mounted,
    /// Being torn down.
    Releasing,
    /// Torn down.
    Unmounted,
    /// The last attempt failed.
    Failed,
}

/// The status of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The name in the pod.
    pub name: String,
    /// The phase.
    pub phase: VolumePhase,
    /// The path on the node, once mounted.
    pub host_path: String,
    /// What it waits for, or why it failed.
    pub message: String,
    /// The time of the last change of phase or message.
    pub since: Timestamp,
    /// The pod is rejected because of it.
    pub rejected: bool,
    /// The supplemental group of the persistent volume.
    pub group: Option<i64>,
    /// When the event of the message is emitted again.
    pub warning_repeat: Option<WarningRepeat>,
}

impl VolumeStatus {
    /// A status without a path; `since` is set by the computation of the pod's status.
    pub(super) fn new(name: &str, phase: VolumePhase, message: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            phase,
            host_path: String::new(),
            message: message.into(),
            since: Timestamp::UNIX_EPOCH,
            rejected: false,
            group: None,
            warning_repeat: None,
        }
    }

    /// The same, of a volume that is blocked.
    pub(super) fn repeated(mut self, blocked: &Blocked) -> Self {
        self.warning_repeat = WarningRepeat::new(blocked);
        self
    }
}

/// The status of all volumes of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodVolumeStatus {
    /// The pod.
    pub pod: PodName,
    /// The sequence of the last declaration that is taken into account.
    pub sequence: u64,
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Since when the pod waits for some volume.
    pub waiting_since: Option<Timestamp>,
    /// When the pod is rejected, if nothing changes.
    pub reject_at: Option<Timestamp>,
}

impl PodVolumeStatus {
    /// Whether the pod is rejected because of a volume.
    pub(super) fn is_rejected(&self) -> bool {
        self.volumes.iter().any(|volume| volume.rejected)
    }
}

/// What the status of a pod is computed from.
#[derive(Debug)]
pub struct StatusInput<'a> {
    /// The pod.
    pub pod: PodName,
    /// The sequence of its last declaration.
    pub sequence: u64,
    /// Its volumes, if they have been declared.
    pub spec: Option<&'a PodVolumeSpec>,
    /// The desired volumes.
    pub desired: &'a DesiredVolumes,
    /// The actual volumes.
    pub actual: &'a ActualPod,
    /// The keys of the volumes by name, as far as they are resolved.
    pub keys: BTreeMap<String, VolumeKey>,
    /// The host paths that were stored when this process started, by name.
    pub host_paths: &'a BTreeMap<String, String>,
}
