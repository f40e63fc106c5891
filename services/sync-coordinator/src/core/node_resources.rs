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
    /// Wider than the amounts, so that subtraction reverses addition.
    sums: BTreeMap<String, i128>,
    qos_sums: QosSums,
}

/// The sum of requests per QoS class, wider than the amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct QosSums {
    /// CPU of Burstable pods, in thousandths.
    burstable_cpu: i128,
    /// Memory of Burstable pods in bytes.
    burstable_memory: i128,
    /// Memory of Guaranteed pods in bytes.
    guaranteed_memory: i128,
}

impl QosSums {
    /// Adds a pod's request, or subtracts it with the sign -1.
    fn count(&mut self, request: &PodRequest, sign: i128) {
        let amount = |name| i128::from(request.requested(name)) * sign;
        match request.qos {
            QosClass::Guaranteed => self.guaranteed_memory += amount("memory"),
            QosClass::Burstable => {
                self.burstable_memory += amount("memory");
                self.burstable_cpu += amount("cpu");
            }
            QosClass::BestEffort => {}
        }
    }

    /// The sums as amounts.
    fn requests(self) -> QosRequests {
        QosRequests {
            burstable_cpu: saturated(self.burstable_cpu),
            burstable_memory: saturated(self.burstable_memory),
            guaranteed_memory: saturated(self.guaranteed_memory),
        }
    }
}

/// The amount that is closest to a sum.
fn saturated(sum: i128) -> i64 {
    let limit = if sum < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(sum).unwrap_or(limit)
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

    /// Adds a pod's request to all sums, or subtracts it with the sign -1.
    fn count(&mut self, request: &PodRequest, sign: i128) {
        self.qos_sums.count(request, sign);
        for (name, amount) in &request.requests {
            let sum = self.sums.entry(name.clone()).or_default();
            *sum += i128::from(*amount) * sign;
        }
    }

    /// The sum of a resource's amounts.
    fn sum(&self, name: &str) -> i128 {
        if name == node::PODS {
            return i128::try_from(self.pods.len()).unwrap_or(i128::MAX);
        }
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// The amount of a resource that is allocated.
    pub fn used(&self, name: &str) -> i64 {
        saturated(self.sum(name))
    }

    /// The amount of a resource that all pods but one have.
    pub fn used_by_others(&self, name: &str, without: &str) -> i64 {
        let own = self.pods.get(without);
        let own = own.map_or(0, |pod| pod.request.requested(name));
        saturated(self.sum(name) - i128::from(own))
    }

    /// All pods with a share, by UID.
    pub fn pods(&self) -> impl Iterator<Item = (&str, &AllocatedPod)> {
        self.pods.iter().map(|(uid, pod)| (uid.as_str(), pod))
    }

    /// The sum of requests per QoS class, with one pod replaced.
    pub fn class_requests(&self, without: &str, instead: Option<&PodRequest>) -> QosRequests {
        let mut sums = self.qos_sums;
        if let Some(pod) = self.pods.get(without) {
            sums.count(&pod.request, -1);
        }
        if let Some(request) = instead {
            sums.count(request, 1);
        }
        sums.requests()
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

    /// CPU and memory of Burstable pods, and memory of Guaranteed pods.
    fn class_sums(requests: QosRequests) -> (i64, i64, i64) {
        (
            requests.burstable_cpu,
            requests.burstable_memory,
            requests.guaranteed_memory,
        )
    }

    #[test]
    fn sums_follow_the_allocated_pods() {
        let mut allocated = AllocatedPods::default();
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(100, QosClass::Burstable))));
        assert!(!allocated.set(&"b".into(), Some(allocated_pod(200, QosClass::Guaranteed))));
        assert!(!allocated.set(&"a".into(), Some(allocated_pod(300, QosClass::Burstable))));
        assert_eq!((allocated.used("cpu"), allocated.used("pods")), (500, 2));
        let requests = |without: &str, instead: Option<&PodRequest>| {
            class_sums(allocated.class_requests(without, instead))
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
        assert_eq!(allocated.class_requests("", None), QosRequests::default());
    }

    #[test]
    fn class_of_a_changed_pod_has_its_requests() {
        let mut allocated = AllocatedPods::default();
        for (qos, expected) in [
            (QosClass::Burstable, (100, 1000, 0)),
            (QosClass::Guaranteed, (0, 0, 1000)),
            (QosClass::BestEffort, (0, 0, 0)),
        ] {
            allocated.set(&"a".into(), Some(allocated_pod(100, qos)));
            let sums = class_sums(allocated.class_requests("b", None));
            assert_eq!(sums, expected, "{qos:?}");
        }
    }

    #[test]
    fn pods_that_request_more_than_an_amount_can_be_leave_nothing() {
        let mut allocated = AllocatedPods::default();
        let mut most = allocated_pod(0, QosClass::Burstable);
        let requests = &mut Arc::make_mut(&mut most.request).requests;
        requests.values_mut().for_each(|amount| *amount = i64::MAX);
        let other = allocated_pod(100, QosClass::Burstable);
        for (uid, pod) in [("a", &most), ("b", &most), ("c", &other)] {
            allocated.set(&uid.into(), Some(pod.clone()));
        }
        let sums = class_sums(allocated.class_requests("c", Some(&other.request)));
        assert_eq!(sums, (i64::MAX, i64::MAX, 0));
        assert_eq!(allocated.used("cpu"), i64::MAX);
        assert_eq!(allocated.used_by_others("cpu", "c"), i64::MAX);
        for uid in ["a", "b"] {
            allocated.set(&uid.into(), None);
        }
        let sums = class_sums(allocated.class_requests("", None));
        assert_eq!(sums, (100, 1000, 0));
        assert_eq!(allocated.used("cpu"), 100);
    }
}
