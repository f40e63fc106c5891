//! Everything that the node controller reacts to.

use k8s_openapi::api::core::v1::Node;

use crate::core::node::facts::{
    NodeDevices, NodeImage, NodeRuntimeStatus, PressureCondition, PressureResource,
};

/// A changed fact, or the watched object.
pub(super) enum NodeInput {
    /// Status of the runtime.
    Runtime(Box<NodeRuntimeStatus>),
    /// Pleg is unavailable.
    RuntimeStale,
    /// A pressure condition.
    Pressure(PressureResource, PressureCondition),
    /// An image was added or removed.
    Image(String, Option<NodeImage>),
    /// The initial list of images is complete.
    ImagesSynced,
    /// Attachable volumes that pods use or are about to use.
    VolumesInUse(Vec<String>),
    /// A resource of a device plugin.
    Devices(String, NodeDevices),
    /// The initial list of these resources is complete.
    DevicesSynced,
    /// The object at the API server; `None` if it does not exist.
    Node(Option<Box<Node>>),
    /// The node's addresses.
    Addresses(Vec<String>),
    /// The CSINode was created or found.
    CsiNodeCreated,
}
