//! The node's capacity as admission sees it, and the shares of admitted pods.

mod allocated_pods;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use polylet_model::Manifest;
use polylet_model::host_port::{self, HostPort};
use polylet_model::node::{self, ResourceList};
use polylet_model::qos::{self, QosClass};
use serde::{Deserialize, Serialize};

pub use allocated_pods::{AllocatedPod, AllocatedPods};

/// The share of the node that a pod requests. Stored at admission: a later change of the manifest
/// does not change it without a resize.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodRequest {
    /// Resource requests with pod overhead.
    pub requests: ResourceList,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// The QoS class: preemption takes lower classes first.
    pub qos: QosClass,
    /// The pod's priority, if set.
    pub priority: Option<i32>,
    /// Whether it is a static, mirror or high-priority pod.
    pub critical: bool,
}

impl PodRequest {
    /// The request of a manifest.
    pub fn from_manifest(manifest: &Manifest) -> Self {
        let spec = manifest.spec();
        PodRequest {
            requests: node::requests(spec),
            ports: host_port::host_ports(spec),
            qos: qos::class(spec),
            priority: spec.priority,
            critical: manifest.is_critical(),
        }
    }

    /// The larger of both requests for each resource: what a pod may use during a resize.
    pub fn max(&self, other: &PodRequest) -> PodRequest {
        let mut max = self.clone();
        for (name, amount) in &other.requests {
            let own = max.requests.entry(name.clone()).or_insert(*amount);
            *own = (*own).max(*amount);
        }
        max
    }

    /// The amount of one resource; one of `pods`.
    pub fn requested(&self, name: &str) -> i64 {
        if name == node::PODS {
            return 1;
        }
        self.requests.get(name).copied().unwrap_or(0)
    }

    /// Whether this pod may preempt the other.
    pub fn may_preempt(&self, other: &PodRequest) -> bool {
        (self.critical && !other.critical)
            || self
                .priority
                .zip(other.priority)
                .is_some_and(|(own, other)| own > other)
    }
}

/// The node's memory and swap, for `LimitedSwap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapCapacity {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of swap.
    pub swap: u64,
}

/// The Node object in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum NodeObject {
    /// There is no cluster or no such object: the node's own configuration is used.
    #[default]
    Absent,
    /// Not received yet.
    NotSynced,
    /// The object was received.
    Present {
        /// The labels.
        labels: BTreeMap<String, String>,
        /// The taints.
        taints: Vec<Taint>,
        /// `status.allocatable`, including extended resources.
        allocatable: ResourceList,
    },
}

/// Feature gates of in-place resize, with upstream's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeGates {
    /// The gate `InPlacePodVerticalScaling`.
    pub pods: bool,
    /// The gate `InPlacePodLevelResourcesVerticalScaling`.
    pub pod_level: bool,
    /// Resize of running init containers.
    pub init_containers: bool,
}

impl Default for ResizeGates {
    fn default() -> Self {
        ResizeGates {
            pods: true,
            pod_level: true,
            init_containers: true,
        }
    }
}

/// The node's resources as admission sees them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeResources {
    /// The node's name.
    pub node_name: String,
    /// Labels from the node's configuration.
    pub labels: BTreeMap<String, String>,
    /// The Node object.
    pub node_object: NodeObject,
    /// Allocatable resources; `None` while unknown.
    pub allocatable: Option<ResourceList>,
    /// The shares of admitted pods.
    pub allocated: AllocatedPods,
    /// Why AppArmor profiles cannot be enforced on this node, if they cannot.
    pub apparmor_error: Option<String>,
    /// Whether the runtime supports `supplementalGroupsPolicy: Strict`.
    pub supports_strict_supplemental_groups: bool,
    /// Whether `PodLevelResources` is disabled.
    pub pod_level_resources_disabled: bool,
    /// The features that the node declares; `None` if it declares none at all.
    pub declared_features: Option<Vec<String>>,
    /// Feature gates of in-place resize.
    pub resize_gates: ResizeGates,
    /// Memory and swap under `LimitedSwap`, where containers get swap by their memory request.
    pub limited_swap: Option<SwapCapacity>,
}

impl NodeResources {
    /// The node's labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        match &self.node_object {
            NodeObject::Present { labels, .. } => labels,
            NodeObject::Absent | NodeObject::NotSynced => &self.labels,
        }
    }

    /// The node's taints.
    pub fn taints(&self) -> &[Taint] {
        match &self.node_object {
            NodeObject::Present { taints, .. } => taints,
            NodeObject::Absent | NodeObject::NotSynced => &[],
        }
    }

    /// The allocatable amount of a resource; `None` when unknown.
    pub fn allocatable(&self, name: &str) -> Option<i64> {
        let own = self.allocatable.as_ref()?;
        let reported = match &self.node_object {
            NodeObject::Present { allocatable, .. } => allocatable.get(name),
            NodeObject::Absent | NodeObject::NotSynced => None,
        };
        reported.or_else(|| own.get(name)).copied()
    }
}
