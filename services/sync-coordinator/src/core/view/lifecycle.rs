//! State of container hooks and stops, stored across restarts of this process.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The state of a container's postStart hook.
#[derive(Clone, Debug, PartialEq)]
pub enum PostStartState {
    /// Not run yet, or running.
    Due,
    /// The hook failed, so the container is killed.
    Failed {
        /// Upstream's message.
        message: String,
        /// Time of the failure.
        at: Timestamp,
    },
}

/// The stop of one container: hook and signal share one deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerStop {
    /// Time of the first kill request.
    pub started_at: Timestamp,
    /// The shortest grace period requested so far, in seconds.
    pub grace_period: u32,
    /// End of the grace period.
    pub deadline: Timestamp,
    /// The preStop hook has ended.
    pub pre_stop_done: bool,
    /// The container is stopped to be replaced.
    pub restart: bool,
}

/// The next start of a container whose record was removed for the restart of all containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRestart {
    /// The restart count.
    pub attempt: u32,
    /// Number of crashes in a row before it.
    pub backoff_step: u32,
    /// No container of the pod starts before this time.
    pub not_before: Option<Timestamp>,
}

/// Operations on a pod's containers that the runtime has no record of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodLifecycle {
    /// Stops in progress of containers that still exist, by container id.
    pub stops: BTreeMap<String, ContainerStop>,
    /// postStart hooks that have not succeeded, by container id.
    pub post_starts: BTreeMap<String, PostStartState>,
    /// Starts after the restart of all containers, by container name.
    pub pending_restarts: BTreeMap<String, PendingRestart>,
}

impl PodLifecycle {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty() && self.post_starts.is_empty() && self.pending_restarts.is_empty()
    }

    /// Drops containers for which `exists` is false.
    pub fn retain(&mut self, exists: impl Fn(&String) -> bool) {
        self.stops.retain(|id, _| exists(id));
        self.post_starts.retain(|id, _| exists(id));
    }
}
