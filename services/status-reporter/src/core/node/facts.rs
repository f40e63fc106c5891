//! Facts that the node's status is computed from.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeRuntimeHandler, NodeSystemInfo};
use polylet_model::node::ResourceList;

/// The node is NotReady after pleg was unavailable for this long: upstream's relist threshold.
pub(crate) const PLEG_TIMEOUT: SignedDuration = SignedDuration::from_mins(3);

/// Settings and machine data, fixed for the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSettings {
    pub(crate) name: String,
    /// The addresses are configured, or their family: on a cloud's node, all others are left to its
    /// controller.
    pub(crate) addresses_configured: bool,
    /// A cloud controller sets the addresses.
    pub(crate) external_cloud: bool,
    /// The port of the node API.
    pub(crate) port: u16,
    pub(crate) capacity: ResourceList,
    pub(crate) allocatable: ResourceList,
    /// Everything but the runtime's version.
    pub(crate) info: NodeSystemInfo,
    /// Limit of images in the status; -1 for all.
    pub(crate) max_images: i32,
    /// Declared features.
    pub(crate) features: Vec<String>,
}

/// A pressure condition as eviction reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PressureCondition {
    pub(crate) active: bool,
    pub(crate) reason: String,
}

/// A resource with a pressure condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PressureResource {
    Memory,
    Disk,
    Pids,
}

impl PressureResource {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pids];
}

/// The status of the runtime as pleg reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeRuntimeStatus {
    /// Why the runtime is not ready; `None` when it is.
    pub(crate) not_ready: Option<String>,
    /// Why its network is not ready.
    pub(crate) network_not_ready: Option<String>,
    /// `containerd://2.1.9`.
    pub(crate) version: String,
    pub(crate) handlers: Vec<NodeRuntimeHandler>,
    pub(crate) supplemental_groups_policy: bool,
}

/// An image on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeImage {
    pub(crate) names: Vec<String>,
    pub(crate) bytes: u64,
}

/// The devices of a resource that a plugin has registered; none once the plugin is gone for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeDevices {
    pub(crate) capacity: i64,
    /// Healthy devices.
    pub(crate) allocatable: i64,
}

/// Everything that changes in the node's status.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeFacts {
    /// `None` before the first status.
    pub(crate) runtime: Option<NodeRuntimeStatus>,
    /// InternalIP addresses, the primary one first; `None` before they are detected.
    pub(crate) addresses: Option<Vec<String>>,
    /// Since when pleg is unavailable.
    pub(crate) pleg_stale_since: Option<Timestamp>,
    pub(crate) pressure: BTreeMap<PressureResource, PressureCondition>,
    pub(crate) images: BTreeMap<String, NodeImage>,
    /// The initial list of images is complete.
    pub(crate) images_synced: bool,
    /// `None` before they are known: the controller detaches volumes that are not listed. A registration
    /// does not wait for them: until then, those of an existing object stay, as upstream keeps them.
    pub(crate) volumes_in_use: Option<Vec<String>>,
    /// Resources of device plugins, by name.
    pub(crate) devices: BTreeMap<String, NodeDevices>,
    /// The initial list of these resources is complete. A registration does not wait for it: until then,
    /// the extended resources of an existing object stay.
    pub(crate) devices_synced: bool,
    /// The CSINode exists; an existing Node that was ready had one.
    pub(crate) has_csi_node: bool,
}

impl NodeFacts {
    /// Whether the facts of a complete status are known.
    pub(crate) fn has_synced(&self) -> bool {
        self.runtime.is_some()
            && self.addresses.is_some()
            && self.images_synced
            && self.pressure.len() == PressureResource::ALL.len()
    }
}
