//! Node conditions: when they become true, and for how long.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::signal::EvictionResource;

/// A node condition that eviction sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum NodeCondition {
    Memory,
    Disk,
    Pids,
}

impl NodeCondition {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pids];

    /// The reason of the node condition in `v1.NodeStatus`.
    pub(crate) fn reason(self, under_pressure: bool) -> &'static str {
        match (self, under_pressure) {
            (Self::Memory, true) => "KubeletHasInsufficientMemory",
            (Self::Memory, false) => "KubeletHasSufficientMemory",
            (Self::Disk, true) => "KubeletHasDiskPressure",
            (Self::Disk, false) => "KubeletHasNoDiskPressure",
            (Self::Pids, true) => "KubeletHasInsufficientPID",
            (Self::Pids, false) => "KubeletHasSufficientPID",
        }
    }
}

impl From<EvictionResource> for NodeCondition {
    fn from(resource: EvictionResource) -> Self {
        match resource {
            EvictionResource::Memory => Self::Memory,
            EvictionResource::Disk | EvictionResource::Inodes => Self::Disk,
            EvictionResource::Pids => Self::Pids,
        }
    }
}

/// The state of a node condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConditionState {
    pub(crate) active: bool,
    /// When `active` last changed.
    pub(crate) since: Timestamp,
    /// When one of its thresholds was last met.
    pub(crate) last_met: Option<Timestamp>,
}

impl ConditionState {
    /// A condition that is not active.
    pub(crate) fn inactive(now: Timestamp) -> Self {
        Self {
            active: false,
            since: now,
            last_met: None,
        }
    }

    /// As upstream: a condition becomes active at once, and inactive when none of its thresholds was
    /// met for the whole transition period.
    pub(crate) fn next(self, met: bool, now: Timestamp, transition: Duration) -> Self {
        let last_met = if met { Some(now) } else { self.last_met };
        let recently = last_met.is_some_and(|last| {
            Duration::try_from(now.duration_since(last)).unwrap_or(Duration::ZERO) < transition
        });
        let under = met || (self.active && recently);
        Self {
            active: under,
            since: if under == self.active {
                self.since
            } else {
                now
            },
            last_met,
        }
    }
}

/// The last request to remove the dead containers of finished pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerReclaim {
    /// Greater than in all earlier requests, also of earlier process instances.
    pub(crate) request: u64,
    /// What had ended by then is to be removed.
    pub(crate) requested_at: Timestamp,
}

impl ContainerReclaim {
    /// The next request.
    pub(crate) fn next(previous: Option<Self>, now: Timestamp) -> Self {
        let after_previous = previous.map_or(0, |previous| previous.request.saturating_add(1));
        let by_clock = u64::try_from(now.as_millisecond()).unwrap_or(0);
        Self {
            request: after_previous.max(by_clock),
            requested_at: now,
        }
    }
}
