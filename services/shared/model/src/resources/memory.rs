//! Swap, and the memory throttling and protection of cgroup v2.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{limit, pod_requests, request};
use crate::qos::{self, QosClass};

/// Contents of cgroup v2 files, by file name.
pub type CgroupFiles = BTreeMap<String, String>;

/// The swap limit of a container in bytes under `LimitedSwap`: for Burstable pods that are not
/// critical, the node's swap in the proportion of the request to the node's memory. Zero for a
/// container without a request, with a request equal to its limit, or with one above the node's memory.
pub fn limited_swap(
    spec: &PodSpec,
    container: &Container,
    critical: bool,
    node_memory: u64,
    node_swap: u64,
) -> u64 {
    let requested = request(container, "memory").unwrap_or_default();
    let limit = limit(container, "memory").unwrap_or_default();
    if critical
        || qos::class(spec) != QosClass::Burstable
        || requested.is_zero()
        || requested == limit
        || requested.bytes() > node_memory
    {
        return 0;
    }
    let share = requested.bytes() as f64 / node_memory as f64;
    (share * node_swap as f64) as u64
}

/// The settings of the `MemoryQoS` feature gate.
#[derive(Clone, Copy, Debug)]
pub struct MemoryQos {
    /// Where between request and limit throttling starts (`memoryThrottlingFactor`).
    pub throttling: f64,
    /// Whether requests are protected (`memoryReservationPolicy: TieredReservation`).
    pub reserve: bool,
    /// The limit of containers without one, in bytes: the node's memory less reservations, but not less
    /// eviction thresholds.
    pub allocatable: i64,
    /// The page size in bytes.
    pub page: i64,
}

impl MemoryQos {
    /// The files of a container's cgroup.
    pub fn container_files(&self, spec: &PodSpec, container: &Container) -> CgroupFiles {
        let requested = request(container, "memory").unwrap_or_default().value();
        let limit = limit(container, "memory").unwrap_or_default().value();
        let mut files = if self.reserve && requested > 0 {
            memory_protection(qos::class(spec), requested)
        } else {
            ["memory.min", "memory.low"]
                .map(|file| (file.to_owned(), "0".to_owned()))
                .into()
        };
        let ceiling = if limit > 0 { limit } else { self.allocatable };
        if requested != limit && ceiling > 0 {
            let span = (ceiling - requested) as f64;
            let high = requested as f64 + self.throttling * span;
            let page = self.page.max(1);
            let high = (high / page as f64).floor() as i64 * page;
            if high > requested {
                files.insert("memory.high".to_owned(), high.to_string());
            }
        }
        files
    }

    /// The files of a pod's cgroup, which has to protect as much as its containers' cgroups.
    pub fn pod_files(&self, spec: &PodSpec) -> CgroupFiles {
        let requested = pod_requests(spec).get("memory").copied();
        let requested = requested.unwrap_or_default().value();
        match self.reserve && requested > 0 {
            true => memory_protection(qos::class(spec), requested),
            false => CgroupFiles::new(),
        }
    }
}

/// Memory that the kernel never reclaims from a Guaranteed pod, and from others only as a last resort.
pub fn memory_protection(class: QosClass, bytes: i64) -> CgroupFiles {
    let file = match class {
        QosClass::Guaranteed => "memory.min",
        QosClass::Burstable | QosClass::BestEffort => "memory.low",
    };
    [(file.to_owned(), bytes.to_string())].into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MI: u64 = 1 << 20;

    fn spec(resources: Value) -> PodSpec {
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        serde_json::from_value(spec).unwrap()
    }

    fn swap(resources: Value, critical: bool) -> u64 {
        let spec = spec(resources);
        limited_swap(&spec, &spec.containers[0], critical, 1000 * MI, 500 * MI)
    }

    #[test]
    fn swap_limits_by_request() {
        let burstable = json!({"requests": {"memory": "100Mi"}});
        assert_eq!(swap(burstable.clone(), false), 50 * MI);
        assert_eq!(swap(burstable, true), 0);
        assert_eq!(swap(json!({}), false), 0);
        let above_capacity = json!({"requests": {"memory": "1001Mi"}});
        assert_eq!(swap(above_capacity, false), 0);
        let full = json!({"memory": "100Mi", "cpu": "1"});
        assert_eq!(swap(json!({"requests": full, "limits": full}), false), 0);
        let even = json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}});
        assert_eq!(swap(even, false), 0);
    }

    #[test]
    fn throttling_and_protection_of_containers() {
        let files = |resources: Value, reserve: bool| {
            let spec = spec(resources);
            let qos = MemoryQos {
                throttling: 0.9,
                reserve,
                allocatable: 1000,
                page: 10,
            };
            let files = qos.container_files(&spec, &spec.containers[0]).into_iter();
            files
                .map(|(file, value)| format!("{file}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let some = json!({"requests": {"memory": "100"}, "limits": {"memory": "205"}});
        assert_eq!(
            files(some.clone(), false),
            "memory.high=190 memory.low=0 memory.min=0"
        );
        assert_eq!(files(some, true), "memory.high=190 memory.low=100");
        assert_eq!(
            files(json!({"requests": {"memory": "100"}}), false),
            "memory.high=910 memory.low=0 memory.min=0"
        );
        let full = json!({"memory": "100", "cpu": "1"});
        assert_eq!(
            files(json!({"requests": full, "limits": full}), true),
            "memory.min=100"
        );
        assert_eq!(files(json!({}), true), "memory.low=0 memory.min=0");
        let even = json!({"requests": {"memory": "100"}, "limits": {"memory": "100"}});
        assert_eq!(files(even, true), "memory.low=100");
    }

    #[test]
    fn pods_protect_their_containers_and_overhead() {
        let files = |resources: Value, reserve: bool| {
            let mut spec = spec(resources);
            spec.overhead = serde_json::from_value(json!({"memory": "7"})).unwrap();
            let qos = MemoryQos {
                throttling: 0.9,
                reserve,
                allocatable: 1000,
                page: 10,
            };
            let files = qos.pod_files(&spec).into_iter();
            files.collect::<Vec<_>>()
        };
        let one = |file: &str, value: &str| vec![(file.to_owned(), value.to_owned())];
        let full = json!({"memory": "100", "cpu": "1"});
        let full = json!({"requests": full, "limits": full});
        assert_eq!(files(full.clone(), true), one("memory.min", "107"));
        assert_eq!(files(full, false), []);
        let some = json!({"requests": {"memory": "100"}});
        assert_eq!(files(some, true), one("memory.low", "107"));
    }
}
