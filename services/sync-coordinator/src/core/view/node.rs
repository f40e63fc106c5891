use std::time::Duration;

use jiff::Timestamp;

use crate::core::node_resources::NodeResources;

/// The node's pressure conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePressure {
    /// The condition `MemoryPressure`.
    pub memory: bool,
    /// The condition `DiskPressure`.
    pub disk: bool,
    /// The condition `PIDPressure`.
    pub pids: bool,
}

/// The state of the node that decisions depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// Every pod source and pleg have synced with this instance, and none is stale.
    pub all_synced: bool,
    /// Whether the runtime's states are current.
    pub pleg_synced: bool,
    /// The runtime's health, with the reason when it is not ready.
    pub runtime: Result<(), String>,
    /// The pod network's health, with the reason when it is not ready.
    pub network: Result<(), String>,
    /// Whether volume states are current.
    pub volumes_synced: bool,
    /// The node's pressure conditions.
    pub pressure: NodePressure,
    /// What had ended by then of terminated pods is removed, to free disk space.
    pub container_reclaim: Option<Timestamp>,
    /// Capacity and allocation.
    pub resources: NodeResources,
    /// The longest back-off of a crashing container.
    pub max_restart_backoff: Duration,
}
