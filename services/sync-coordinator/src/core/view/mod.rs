//! The input of a decision: one pod, the node, and the time.

mod lifecycle;
mod node;
mod pod;

pub use lifecycle::{ContainerStop, PendingRestart, PodLifecycle, PostStartState};
pub use node::{NodePressure, NodeState};
pub use pod::{InFlight, PodSyncStatus, ProbeFailure, ResolvedImage, StepBackoff, free_if_empty};

use jiff::Timestamp;

use crate::core::runtime_state::PodRuntimeState;
use crate::core::step::StepKey;

/// The input of one decision.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The pod.
    pub pod: &'a PodSyncStatus,
    /// The node.
    pub node: &'a NodeState,
    /// The present time.
    pub now: Timestamp,
}

impl<'a> View<'a> {
    /// Whether a step of this key is in flight.
    pub fn in_flight(&self, key: &StepKey) -> bool {
        self.pod.in_flight.contains_key(key)
    }

    /// The back-off that still delays a step.
    pub fn backing_off(&self, key: &StepKey) -> Option<&'a StepBackoff> {
        let failure = self.pod.failures.get(key);
        failure.filter(|failure| failure.is_active(self.now))
    }

    /// The runtime's state with pending effects applied.
    pub fn observed(&self) -> &'a PodRuntimeState {
        self.pod
            .observed
            .as_deref()
            .unwrap_or(&self.pod.last_reported)
    }

    /// Whether a container is being created or started.
    pub fn is_starting(&self, container: &str) -> bool {
        self.in_flight(&StepKey::CreateContainer(container.to_owned()))
            || self.in_flight(&StepKey::StartContainer(container.to_owned()))
    }
}
