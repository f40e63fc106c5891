//! The part of a pod's state that is stored on disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::constants::{REJECTION_MESSAGE_PREFIX, phase};
use polylet_model::{PodAllocation, ResizableResources};

use crate::core::node_resources::PodRequest;

/// Why a pod never runs again on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTermination {
    /// The reason for `status.reason`; empty for a pod that completed by itself.
    pub reason: String,
    /// The message for `status.message`.
    pub message: String,
    /// `Failed` or `Succeeded`.
    pub phase: String,
    /// Whether the pod gets the DisruptionTarget condition.
    pub disruption_target: bool,
    /// Time of the decision.
    pub decided_at: Timestamp,
    /// Grace period in seconds that overrides the pod's own.
    pub grace_period: Option<u32>,
}

impl PodTermination {
    /// The termination of a pod that failed admission.
    pub fn rejected(now: Timestamp, reason: &str, message: &str) -> Self {
        PodTermination {
            reason: reason.to_owned(),
            message: format!("{REJECTION_MESSAGE_PREFIX}{message}"),
            phase: phase::FAILED.to_owned(),
            disruption_target: false,
            decided_at: now,
            grace_period: None,
        }
    }

    /// The termination of a pod whose containers have all exited for good.
    pub fn completed(now: Timestamp, succeeded: bool) -> Self {
        let phase = if succeeded {
            phase::SUCCEEDED
        } else {
            phase::FAILED
        };
        PodTermination {
            reason: String::new(),
            message: String::new(),
            phase: phase.to_owned(),
            disruption_target: false,
            decided_at: now,
            grace_period: None,
        }
    }
}

/// The last removal of a pod's manifest, as known when its worker began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastRemoval {
    /// Former versions did not store it.
    #[default]
    Unknown,
    /// The source knew of none.
    Never,
    /// The source has added the pod again after this time.
    At(Timestamp),
}

impl LastRemoval {
    /// Whether the pod was removed and added again since, if its source now serves this time. A source
    /// that knows of no removal says nothing.
    pub fn is_before(self, served: Option<Timestamp>) -> bool {
        match (self, served) {
            (LastRemoval::Unknown, _) | (_, None) => false,
            (LastRemoval::Never, Some(_)) => true,
            (LastRemoval::At(known), Some(served)) => known < served,
        }
    }
}

impl From<Option<Timestamp>> for LastRemoval {
    fn from(served: Option<Timestamp>) -> Self {
        served.map_or(LastRemoval::Never, LastRemoval::At)
    }
}

/// What is stored of a pod across restarts of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodCheckpoint {
    /// When this node first saw the pod: `status.startTime`.
    pub acknowledged_at: Option<Timestamp>,
    /// The last removal of its manifest before that.
    pub last_removal: LastRemoval,
    /// The share of the node that the pod was admitted with.
    pub request: Option<Arc<PodRequest>>,
    /// The allocated resources of the pod and its containers.
    pub allocated: Option<Arc<PodAllocation>>,
    /// The resources of the pod's cgroup, while they differ from the allocated ones.
    pub cgroup_resources: Option<Arc<PodAllocation>>,
    /// The resources of containers, by id, where they differ from those at creation.
    pub actual_resources: BTreeMap<String, ResizableResources>,
    /// The manifest's generation of the last accepted resize.
    pub resize_generation: i64,
    /// Why the pod never runs again.
    pub termination: Option<PodTermination>,
    /// The pod was terminated and everything of it is stopped and released.
    pub terminated: bool,
}
