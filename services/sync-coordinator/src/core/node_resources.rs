//! The node's capacity as admission sees it, and the shares of admitted pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use polylet_model::host_port::{self, HostPort};
use polylet_model::node::{self, ResourceList};
use polylet_model::qos::{self, QosClass};
use polylet_model::resources::QosRequests;
use polylet_model::{Manifest, PodUid};
use serde::{Deserialize, Serialize};

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

/// A pod with a share of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocatedPod {
    /// Its share.
    pub request: Arc<PodRequest>,
    /// The pod is terminating: its share becomes free without preemption.
    pub terminating: bool,
}

/// The shares of all admitted pods, with sums per resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatedPods {
    pods: BTreeMap<PodUid, AllocatedPod>,
    sums: ResourceList,
}

impl AllocatedPods {
    /// Sets or removes a pod's share. True when some of a resource became free.
    pub fn set(&mut self, uid: &PodUid, pod: Option<AllocatedPod>) -> bool {
        if self.pods.get(uid) == pod.as_ref() {
            return false;
        }
        let before = self.pods.remove(uid);
        if let Some(before) = &before {
            self.count(&before.request, -1);
        }
        let freed = match (&before, &pod) {
            (Some(_), None) => true,
            (Some(before), Some(now)) => {
                let mut requests = before.request.requests.iter();
                requests.any(|(name, amount)| now.request.requested(name) < *amount)
            }
            (None, _) => false,
        };
        if let Some(pod) = pod {
            self.count(&pod.request, 1);
            self.pods.insert(uid.clone(), pod);
        }
        freed
    }

    fn count(&mut self, request: &PodRequest, sign: i64) {
        for (name, amount) in &request.requests {
            let sum = self.sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(sign));
        }
    }

    /// The amount of a resource that is allocated.
    pub fn used(&self, name: &str) -> i64 {
        if name == node::PODS {
            return i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        }
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// The amount of a resource that all pods but one have.
    pub fn used_by_others(&self, name: &str, without: &str) -> i64 {
        let own = self.pods.get(without);
        let own = own.map_or(0, |pod| pod.request.requested(name));
        self.used(name).saturating_sub(own)
    }

    /// All pods with a share, by UID.
    pub fn pods(&self) -> impl Iterator<Item = (&str, &AllocatedPod)> {
        self.pods.iter().map(|(uid, pod)| (uid.as_str(), pod))
    }

    /// The sum of requests per QoS class, with one pod replaced.
    pub fn class_requests(&self, without: &str, instead: Option<&PodRequest>) -> QosRequests {
        let others = self.pods().filter(|(uid, _)| *uid != without);
        let others = others.map(|(_, pod)| &*pod.request);
        let mut requests = QosRequests::default();
        for request in others.chain(instead) {
            let memory = request.requested("memory");
            let add = |sum: &mut i64, amount: i64| *sum = sum.saturating_add(amount);
            match request.qos {
                QosClass::Guaranteed => add(&mut requests.guaranteed_memory, memory),
                QosClass::Burstable => {
                    add(&mut requests.burstable_memory, memory);
                    add(&mut requests.burstable_cpu, request.requested("cpu"));
                }
                QosClass::BestEffort => {}
            }
        }
        requests
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

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated_pod(cpu: i64, qos: QosClass) -> AllocatedPod {
        AllocatedPod {
            request: Arc::new(PodRequest {
                requests: [("cpu".to_owned(), cpu), ("memory".to_owned(), 10 * cpu)].into(),
                ports: Vec::new(),
                qos,
                priority: None,
                critical: false,
            }),
            terminating: false,
        }
    }

    #[test]
    fn sums_follow_the_allocated_pods() {
        let mut allocated = AllocatedPods::default();
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(100, QosClass::Burstable))));
        assert!(!allocated.set(&"b".into(), Some(allocated_pod(200, QosClass::Guaranteed))));
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(300, QosClass::Burstable))));
        assert_eq!((allocated.used("cpu"), allocated.used("pods")), (500, 2));
        let requests = |without: &str, instead: Option<&PodRequest>| {
            let requests = allocated.class_requests(without, instead);
            (
                requests.burstable_cpu,
                requests.burstable_memory,
                requests.guaranteed_memory,
            )
        };
        assert_eq!(requests("", None), (300, 3000, 2000));
        assert_eq!(requests("a", None), (0, 0, 2000));
        let more = allocated_pod(700, QosClass::Burstable);
        assert_eq!(requests("a", Some(&more.request)), (700, 7000, 2000));
        assert_eq!(allocated.used_by_others("cpu", "a"), 200);
        assert_eq!(allocated.used_by_others("pods", "a"), 1);
        assert_eq!(allocated.used_by_others("cpu", "c"), 500);
        // A smaller share frees resources.
        assert!(allocated.set(&"a".into(), Some(allocated_pod(250, QosClass::Burstable))));
        assert!(allocated.set(&"a".into(), None));
        assert!(!allocated.set(&"a".into(), None));
        assert_eq!((allocated.used("cpu"), allocated.used("pods")), (200, 1));
        assert!(allocated.set(&"b".into(), None));
        assert_eq!((allocated.used("cpu"), allocated.used("memory")), (0, 0));
    }
}
