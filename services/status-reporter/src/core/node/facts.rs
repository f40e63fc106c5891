use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{NodeRuntimeHandler, NodeSystemInfo};
use polylet_model::node::Numbers;

/// A silent observer of the runtime makes a node NotReady after this long, as upstream's does.
pub(crate) const SILENCE: SignedDuration = SignedDuration::from_mins(3);

/// What stays the same as long as the process lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) name: String,
    /// The addresses were given, not found out.
    pub(crate) addresses_given: bool,
    /// Somebody outside gives the node its addresses.
    pub(crate) external_cloud: bool,
    /// The node API's.
    pub(crate) port: u16,
    pub(crate) capacity: Numbers,
    pub(crate) allocatable: Numbers,
    /// All but the runtime's version.
    pub(crate) info: NodeSystemInfo,
    /// -1 for all.
    pub(crate) most_images: i32,
    /// What the node declares that it can do.
    pub(crate) features: Vec<String>,
}

/// A pressure condition as eviction judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) under: bool,
    pub(crate) reason: String,
}

/// The three resources that a node can be short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Memory,
    Disk,
    Pids,
}

impl Resource {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Disk, Self::Pids];
}

/// The runtime as pleg sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Runtime {
    /// Why it is not ready; `None` when it is.
    pub(crate) not_ready: Option<String>,
    /// Why its network is not.
    pub(crate) network_not_ready: Option<String>,
    /// `containerd://2.1.9`.
    pub(crate) version: String,
    pub(crate) handlers: Vec<NodeRuntimeHandler>,
    pub(crate) supplemental_groups_policy: bool,
}

/// An image of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) names: Vec<String>,
    pub(crate) bytes: u64,
}

/// Everything that the node's status is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// `None` before it was heard.
    pub(crate) runtime: Option<Runtime>,
    /// InternalIP addresses, the primary one first; `None` while they are being found out.
    pub(crate) addresses: Option<Vec<String>>,
    /// Since when pleg is silent.
    pub(crate) silent_since: Option<Timestamp>,
    pub(crate) pressure: BTreeMap<Resource, Pressure>,
    pub(crate) images: BTreeMap<String, Image>,
    /// All images were told.
    pub(crate) images_heard: bool,
    /// `None` before they were heard: a controller detaches what is not named.
    pub(crate) volumes_in_use: Option<Vec<String>>,
    /// The CSINode was seen or made; a node that was ready when it was found had one.
    pub(crate) csi_node: bool,
}

impl Facts {
    /// Whether a whole status can be told.
    pub(crate) fn complete(&self) -> bool {
        self.runtime.is_some()
            && self.addresses.is_some()
            && self.images_heard
            && self.volumes_in_use.is_some()
            && self.pressure.len() == Resource::ALL.len()
    }
}
