//! What containers may use, in the kernel's numbers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::constants::SYSTEM_NODE_CRITICAL;
use crate::pod::is_sidecar;
use crate::qos::{self, QosClass};
use crate::quantity::{self, Amount};

mod classes;
mod cpu;
mod memory;
mod oom;
mod sandbox;

pub use classes::{ClassRequests, ClassResources, ClassRules, Classes};
pub use cpu::{
    CPU_PERIOD_US, MAX_CPU_SHARES, MIN_CPU_QUOTA_US, MIN_CPU_SHARES, cpu_quota, cpu_shares,
    cpu_weight,
};
pub use memory::{Files, MemoryQos, limited_swap, protected};
pub use oom::{
    BEST_EFFORT_OOM_SCORE_ADJ, GUARANTEED_OOM_SCORE_ADJ, KUBELET_OOM_SCORE_ADJ, oom_score_adj,
};
pub use sandbox::SandboxResources;

type List = BTreeMap<String, Amount>;

/// Whether a resource can be given to a pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_pages(name)
}

/// Whether a pod says as a whole what it may use.
pub fn has_pod_level(spec: &PodSpec) -> bool {
    let Some(own) = &spec.resources else {
        return false;
    };
    let lists = [&own.requests, &own.limits].into_iter().flatten();
    lists
        .flat_map(BTreeMap::keys)
        .any(|name| is_pod_level(name))
}

/// Whether a resource is `hugepages-<size>`.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn requests_of(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.requests.as_ref()
}

fn limits_of(container: &Container) -> Option<&BTreeMap<String, Quantity>> {
    container.resources.as_ref()?.limits.as_ref()
}

/// What a container asks for.
pub fn request(container: &Container, name: &str) -> Option<Amount> {
    quantity::get(requests_of(container), name)
}

/// What a container may use at most.
pub fn limit(container: &Container, name: &str) -> Option<Amount> {
    quantity::get(limits_of(container), name)
}

fn add(into: &mut List, other: &List) {
    for (name, amount) in other {
        let sum = into.entry(name.clone()).or_default();
        *sum = *sum + *amount;
    }
}

fn raise(into: &mut List, other: &List) {
    for (name, amount) in other {
        let known = into.entry(name.clone()).or_insert(*amount);
        *known = (*known).max(*amount);
    }
}

/// Regular containers and sidecars add up; each init container needs its own
/// beside the sidecars that started before it; the larger of the two counts.
fn aggregate(
    spec: &PodSpec,
    of: impl Fn(&Container) -> Option<&BTreeMap<String, Quantity>>,
) -> List {
    let mut sum = List::new();
    for container in &spec.containers {
        add(&mut sum, &quantity::read(of(container)));
    }
    let (mut sidecars, mut init) = (List::new(), List::new());
    for container in spec.init_containers.iter().flatten() {
        let mut own = quantity::read(of(container));
        if is_sidecar(container) {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut init, &own);
    }
    raise(&mut sum, &init);
    sum
}

/// What all containers ask for together.
pub fn aggregate_requests(spec: &PodSpec) -> List {
    aggregate(spec, requests_of)
}

/// What all containers may use together. A container without a limit adds nothing.
pub fn aggregate_limits(spec: &PodSpec) -> List {
    aggregate(spec, limits_of)
}

fn pod_level(list: Option<&BTreeMap<String, Quantity>>) -> List {
    quantity::read(list)
        .into_iter()
        .filter(|(name, _)| is_pod_level(name))
        .collect()
}

fn own(spec: &PodSpec) -> (List, List) {
    let own = spec.resources.as_ref();
    (
        pod_level(own.and_then(|r| r.requests.as_ref())),
        pod_level(own.and_then(|r| r.limits.as_ref())),
    )
}

/// What a pod asks for: its containers' requests, over them what the pod says as
/// a whole, and its overhead.
pub fn pod_requests(spec: &PodSpec) -> List {
    let mut sum = aggregate_requests(spec);
    sum.extend(own(spec).0);
    add(&mut sum, &quantity::read(spec.overhead.as_ref()));
    sum
}

/// What a pod may use at most, with its overhead on each limit that there is.
pub fn pod_limits(spec: &PodSpec) -> List {
    let mut sum = aggregate_limits(spec);
    sum.extend(own(spec).1);
    let overhead = quantity::read(spec.overhead.as_ref());
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
        quantity::write(&pod_requests(spec)),
        quantity::write(&pod_limits(spec)),
    );
    let resources = ResourceRequirements {
        claims: None,
        limits: some(limits),
        requests: some(requests.clone()),
    };
    (resources, requests)
}

/// The kernel's limits for one container, as the runtime takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerResources {
    /// Weight among its neighbours.
    pub cpu_shares: u64,
    /// Microseconds of CPU time in each period; 0 for no bound.
    pub cpu_quota: i64,
    /// The period in microseconds; 0 where CPU limits are not enforced.
    pub cpu_period: i64,
    /// Bytes; 0 for no bound.
    pub memory_limit: i64,
    /// See [`oom_score_adj`].
    pub oom_score_adj: i64,
    /// Limit in bytes for each page size that the pod names (`2Mi`).
    pub huge_pages: BTreeMap<String, u64>,
}

/// Computes them. `memory_capacity` is the node's, in bytes; `quota` is whether
/// CPU limits are enforced at all, and `period_us` for how long each.
pub fn container(
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
    let limited = limit("cpu");
    // A limit without a request is a request as well.
    let cpu = request(container, "cpu").unwrap_or(limited);
    let (cpu_quota, cpu_period) = match quota {
        true => (cpu_quota(limited.millis(), period_us), period_us),
        false => (0, 0),
    };
    // A container that names no size of huge pages is held to its pod's.
    let mut huge = own(spec).1;
    huge.extend(quantity::read(limits_of(container)));
    ContainerResources {
        cpu_shares: cpu_shares(cpu.millis()),
        cpu_quota,
        cpu_period,
        memory_limit: limit("memory").value().max(0),
        oom_score_adj: oom_score_adj(spec, container, memory_capacity),
        huge_pages: huge_pages(&huge),
    }
}

/// Limits by page size (`2Mi`), in bytes.
fn huge_pages(list: &List) -> BTreeMap<String, u64> {
    list.iter()
        .filter_map(|(name, amount)| {
            Some((name.strip_prefix("hugepages-")?.to_owned(), amount.bytes()))
        })
        .collect()
}

/// A container without a limit of its own is held to its pod's.
pub fn pod_level_limit(spec: &PodSpec, name: &str) -> Option<Amount> {
    quantity::get(spec.resources.as_ref()?.limits.as_ref(), name)
}

/// The kernel's limits for a pod's cgroup; an absent one is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResources {
    /// Weight among the pods of its class.
    pub cpu_shares: u64,
    /// Microseconds in each period; absent unless every container is limited.
    pub cpu_quota: Option<i64>,
    /// The period in microseconds.
    pub cpu_period: i64,
    /// Bytes; absent unless every container is limited.
    pub memory_limit: Option<i64>,
    /// Limit in bytes for each page size.
    pub huge_pages: BTreeMap<String, u64>,
}

/// Computes them.
pub fn pod(spec: &PodSpec, quota: bool, period_us: i64) -> PodResources {
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let at = |list: &List, name: &str| list.get(name).copied().unwrap_or_default();
    let class = qos::class(spec);
    let (own_requests, own_limits) = own(spec);
    let named = |list: &List, name: &str| list.get(name).is_some_and(|amount| !amount.is_zero());
    let limited = |name: &str| named(&own_limits, name) || all_limited(spec, name);
    let mut shares = cpu_shares(at(&requests, "cpu").millis());
    if !own_requests.contains_key("cpu")
        && at(&requests, "cpu").is_zero()
        && !at(&limits, "cpu").is_zero()
    {
        shares = cpu_shares(at(&limits, "cpu").millis());
    }
    let bounded = |name: &str| match class {
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
        cpu_quota: bounded("cpu").then_some(quota_us),
        cpu_period: period_us,
        memory_limit: bounded("memory").then(|| at(&limits, "memory").value()),
        huge_pages: huge_pages(&limits),
    }
}

/// Whether each container that runs beside others has a limit.
fn all_limited(spec: &PodSpec, name: &str) -> bool {
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .all(|container| limit(container, name).is_some_and(|l| !l.is_zero()))
}

/// Whether the pod's priority class is the node's own.
pub fn is_node_critical(spec: &PodSpec) -> bool {
    spec.priority_class_name.as_deref() == Some(SYSTEM_NODE_CRITICAL)
        || spec
            .priority
            .is_some_and(|priority| priority >= crate::constants::SYSTEM_CRITICAL_PRIORITY + 1000)
}

#[cfg(test)]
mod tests;
