//! Requests and limits of containers and pods, and the kernel's settings that follow from them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::constants::SYSTEM_NODE_CRITICAL;
use crate::pod::is_sidecar;
pub use crate::pod_level::{has_pod_level, is_huge_pages, is_pod_level};
use crate::qos::{self, QosClass};
use crate::quantity::{self, Amount};

mod cpu;
mod memory;
mod oom;
mod qos_cgroups;
mod sandbox;

pub use cpu::{
    CPU_PERIOD_US, MAX_CPU_SHARES, MIN_CPU_QUOTA_US, MIN_CPU_SHARES, cpu_quota, cpu_shares,
    cpu_weight,
};
pub use memory::{CgroupFiles, MemoryQos, limited_swap, memory_protection};
pub use oom::{
    BEST_EFFORT_OOM_SCORE_ADJ, GUARANTEED_OOM_SCORE_ADJ, KUBELET_OOM_SCORE_ADJ, oom_score_adj,
};
pub use qos_cgroups::{QosCgroup, QosCgroupConfig, QosCgroups, QosRequests};
pub use sandbox::SandboxResources;

/// Amounts by resource.
type AmountList = BTreeMap<String, Amount>;

fn container_requests(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.requests.as_ref()
}

fn container_limits(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.limits.as_ref()
}

/// A container's request of a resource.
pub fn request(container: &Container, name: &str) -> Option<Amount> {
    quantity::parse_entry(container_requests(container), name)
}

/// A container's limit of a resource.
pub fn limit(container: &Container, name: &str) -> Option<Amount> {
    quantity::parse_entry(container_limits(container), name)
}

fn add_all(into: &mut AmountList, other: &AmountList) {
    for (name, amount) in other {
        let sum = into.entry(name.clone()).or_default();
        *sum = *sum + *amount;
    }
}

fn max_all(into: &mut AmountList, other: &AmountList) {
    for (name, amount) in other {
        let known = into.entry(name.clone()).or_insert(*amount);
        *known = (*known).max(*amount);
    }
}

/// The larger of two sums: of all regular containers and sidecars; and of an init container with the
/// sidecars that started before it, at most.
fn aggregate(
    spec: &PodSpec,
    list: impl Fn(&Container) -> Option<&BTreeMap<String, Quantity>>,
) -> AmountList {
    let mut sum = AmountList::new();
    for container in &spec.containers {
        add_all(&mut sum, &quantity::parse_list(list(container)));
    }
    let (mut sidecars, mut init) = (AmountList::new(), AmountList::new());
    for container in spec.init_containers.iter().flatten() {
        let mut own = quantity::parse_list(list(container));
        if is_sidecar(container) {
            add_all(&mut sum, &own);
            add_all(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add_all(&mut own, &sidecars);
        }
        max_all(&mut init, &own);
    }
    max_all(&mut sum, &init);
    sum
}

/// The sum of the containers' requests, without pod-level ones.
pub fn aggregate_requests(spec: &PodSpec) -> AmountList {
    aggregate(spec, container_requests)
}

/// The sum of the containers' limits, without pod-level ones. A container without a limit adds
/// nothing.
pub fn aggregate_limits(spec: &PodSpec) -> AmountList {
    aggregate(spec, container_limits)
}

fn pod_level(list: Option<&BTreeMap<String, Quantity>>) -> AmountList {
    quantity::parse_list(list)
        .into_iter()
        .filter(|(name, _)| is_pod_level(name))
        .collect()
}

/// The pod-level requests and limits.
fn pod_level_lists(spec: &PodSpec) -> (AmountList, AmountList) {
    let resources = spec.resources.as_ref();
    (
        pod_level(resources.and_then(|r| r.requests.as_ref())),
        pod_level(resources.and_then(|r| r.limits.as_ref())),
    )
}

/// A pod's requests: the sum of its containers', replaced by pod-level ones, plus its overhead.
pub fn pod_requests(spec: &PodSpec) -> AmountList {
    let mut sum = aggregate_requests(spec);
    sum.extend(pod_level_lists(spec).0);
    add_all(&mut sum, &quantity::parse_list(spec.overhead.as_ref()));
    sum
}

/// A pod's limits: the sum of its containers', replaced by pod-level ones, plus its overhead on each
/// limit that is set.
pub fn pod_limits(spec: &PodSpec) -> AmountList {
    let mut sum = aggregate_limits(spec);
    sum.extend(pod_level_lists(spec).1);
    let overhead = quantity::parse_list(spec.overhead.as_ref());
    for (name, amount) in overhead {
        if let Some(limit) = sum.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = *limit + amount;
        }
    }
    sum
}

/// `resources` and `allocatedResources` of a pod's status.
pub fn pod_status_resources(spec: &PodSpec) -> (ResourceRequirements, BTreeMap<String, Quantity>) {
    let some = |list: BTreeMap<String, Quantity>| Some(list).filter(|list| !list.is_empty());
    let (requests, limits) = (
        quantity::format_stored_list(&pod_requests(spec)),
        quantity::format_stored_list(&pod_limits(spec)),
    );
    let resources = ResourceRequirements {
        claims: None,
        limits: some(limits),
        requests: some(requests.clone()),
    };
    (resources, requests)
}

/// The Linux resources of a container, as the CRI has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerResources {
    /// The CPU weight (`cpu.shares`).
    pub cpu_shares: u64,
    /// CPU time per period in microseconds; 0 for no limit.
    pub cpu_quota: i64,
    /// The period in microseconds; 0 where CPU limits are not enforced.
    pub cpu_period: i64,
    /// The memory limit in bytes; 0 for no limit.
    pub memory_limit: i64,
    /// See [`oom_score_adj`].
    pub oom_score_adj: i64,
    /// Limits of huge pages in bytes, by page size (`2Mi`).
    pub huge_pages: BTreeMap<String, u64>,
}

/// Computes a container's resources. `memory_capacity` is the node's, in bytes; `quota` is whether CPU
/// limits are enforced, and `period_us` the CFS period.
pub fn container_resources(
    spec: &PodSpec,
    container: &Container,
    memory_capacity: u64,
    quota: bool,
    period_us: i64,
) -> ContainerResources {
    let limit = |name: &str| {
        limit(container, name)
            .filter(|own| !own.is_zero())
            .or_else(|| pod_level_limit(spec, name))
            .unwrap_or_default()
    };
    let cpu_limit = limit("cpu");
    // Without a request, the limit is the request.
    let cpu = request(container, "cpu").unwrap_or(cpu_limit);
    let (cpu_quota, cpu_period) = match quota {
        true => (cpu_quota(cpu_limit.millis(), period_us), period_us),
        false => (0, 0),
    };
    // Page sizes that the container has no limit for have the pod's.
    let mut huge_page_limits = pod_level_lists(spec).1;
    huge_page_limits.extend(quantity::parse_list(container_limits(container)));
    ContainerResources {
        cpu_shares: cpu_shares(cpu.millis()),
        cpu_quota,
        cpu_period,
        memory_limit: limit("memory").value().max(0),
        oom_score_adj: oom_score_adj(spec, container, memory_capacity),
        huge_pages: huge_pages(&huge_page_limits),
    }
}

/// Limits of huge pages in bytes, by page size (`2Mi`).
fn huge_pages(list: &AmountList) -> BTreeMap<String, u64> {
    list.iter()
        .filter_map(|(name, amount)| {
            Some((name.strip_prefix("hugepages-")?.to_owned(), amount.bytes()))
        })
        .collect()
}

/// The pod-level limit, which applies to containers without a limit of their own.
pub fn pod_level_limit(spec: &PodSpec, name: &str) -> Option<Amount> {
    quantity::parse_entry(spec.resources.as_ref()?.limits.as_ref(), name)
}

/// The settings of a pod's cgroup; `None` where a file is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResources {
    /// The CPU weight (`cpu.shares`).
    pub cpu_shares: u64,
    /// CPU time per period in microseconds; `None` unless all containers have a limit.
    pub cpu_quota: Option<i64>,
    /// The period in microseconds.
    pub cpu_period: i64,
    /// The memory limit in bytes; `None` unless all containers have one.
    pub memory_limit: Option<i64>,
    /// Limits of huge pages in bytes, by page size.
    pub huge_pages: BTreeMap<String, u64>,
}

/// Computes the settings of a pod's cgroup.
pub fn pod_resources(spec: &PodSpec, quota: bool, period_us: i64) -> PodResources {
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let at = |list: &AmountList, name: &str| list.get(name).copied().unwrap_or_default();
    let class = qos::class(spec);
    let (own_requests, own_limits) = pod_level_lists(spec);
    let is_set =
        |list: &AmountList, name: &str| list.get(name).is_some_and(|amount| !amount.is_zero());
    let limited = |name: &str| is_set(&own_limits, name) || all_limited(spec, name);
    let mut shares = cpu_shares(at(&requests, "cpu").millis());
    if !own_requests.contains_key("cpu")
        && at(&requests, "cpu").is_zero()
        && !at(&limits, "cpu").is_zero()
    {
        shares = cpu_shares(at(&limits, "cpu").millis());
    }
    let has_limit = |name: &str| match class {
        QosClass::Guaranteed => true,
        QosClass::Burstable => limited(name),
        QosClass::BestEffort => false,
    };
    let quota_us = if quota {
        cpu_quota(at(&limits, "cpu").millis(), period_us)
    } else {
        -1
    };
    PodResources {
        cpu_shares: if class == QosClass::BestEffort {
            MIN_CPU_SHARES
        } else {
            shares
        },
        cpu_quota: has_limit("cpu").then_some(quota_us),
        cpu_period: period_us,
        memory_limit: has_limit("memory").then(|| at(&limits, "memory").value()),
        huge_pages: huge_pages(&limits),
    }
}

/// Whether all init, sidecar and regular containers have a limit.
fn all_limited(spec: &PodSpec, name: &str) -> bool {
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .all(|container| limit(container, name).is_some_and(|l| !l.is_zero()))
}

/// Whether the pod's priority class is `system-node-critical`, or its priority as high.
pub fn is_node_critical(spec: &PodSpec) -> bool {
    spec.priority_class_name.as_deref() == Some(SYSTEM_NODE_CRITICAL)
        || spec
            .priority
            .is_some_and(|priority| priority >= crate::constants::SYSTEM_CRITICAL_PRIORITY + 1000)
}

#[cfg(test)]
mod tests;
