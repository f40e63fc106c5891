//! What the service stores on disk, and what it reads back at its start.

pub(crate) mod kubelet_checkpoint;
pub(crate) mod lifecycle_store;
pub(crate) mod pod_store;

use std::collections::BTreeMap;

use polylet_model::PodAllocation;

use crate::core::checkpoint::PodCheckpoint;
use crate::core::view::PodLifecycle;

/// State of a previous process instance, by pod UID.
#[derive(Clone, Debug, Default)]
pub struct RestoredState {
    /// Checkpoints of pods.
    pub checkpoints: BTreeMap<String, PodCheckpoint>,
    /// Attempt numbers of sandboxes whose creation had no known result.
    pub pending_sandboxes: BTreeMap<String, u32>,
    /// Stops and hooks in progress.
    pub lifecycles: BTreeMap<String, PodLifecycle>,
    /// Resources that a kubelet had allocated before this agent took over the node.
    pub kubelet_allocations: BTreeMap<String, PodAllocation>,
}
