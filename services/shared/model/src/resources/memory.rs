//! Memory beyond the plain limit: swap, and what version 2 of cgroups can hold back or protect.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{limit, pod_requests, request};
use crate::qos::{self, QosClass};

/// Files of version 2 of cgroups, with what is written into them.
pub type Files = BTreeMap<String, String>;

/// How much swap a container may use under `LimitedSwap`: of a Burstable pod that is not
/// critical, as large a part of the node's swap as its request is of the node's memory. A
/// container whose request is its limit, or who asks for nothing or for more than there is, gets none.
pub fn limited_swap(
    spec: &PodSpec,
    container: &Container,
    critical: bool,
    node_memory: u64,
    node_swap: u64,
) -> u64 {
    let asked = request(container, "memory").unwrap_or_default();
    let most = limit(container, "memory").unwrap_or_default();
    if critical
        || qos::class(spec) != QosClass::Burstable
        || asked.is_zero()
        || asked == most
        || asked.bytes() > node_memory
    {
        return 0;
    }
    let part = asked.bytes() as f64 / node_memory as f64;
    (part * node_swap as f64) as u64
}

/// What the MemoryQoS gate asks of version 2 for one container.
#[derive(Clone, Copy, Debug)]
pub struct MemoryQos {
    /// Where between request and limit a container is slowed down (`memoryThrottlingFactor`).
    pub throttling: f64,
    /// Requests are protected (`memoryReservationPolicy: TieredReservation`).
    pub reserve: bool,
    /// The limit of those that have none, in bytes: the node's memory without what is reserved; what
    /// eviction keeps free is not taken off.
    pub allocatable: i64,
    /// Bytes of a page.
    pub page: i64,
}

impl MemoryQos {
    /// The files of a container.
    pub fn of_container(&self, spec: &PodSpec, container: &Container) -> Files {
        let asked = request(container, "memory").unwrap_or_default().value();
        let most = limit(container, "memory").unwrap_or_default().value();
        let mut files = if self.reserve && asked > 0 {
            protected(qos::class(spec), asked)
        } else {
            ["memory.min", "memory.low"]
                .map(|file| (file.to_owned(), "0".to_owned()))
                .into()
        };
        let ceiling = if most > 0 { most } else { self.allocatable };
        if asked != most && ceiling > 0 {
            let span = (ceiling - asked) as f64;
            let high = asked as f64 + self.throttling * span;
            let page = self.page.max(1);
            let high = (high / page as f64).floor() as i64 * page;
            if high > asked {
                files.insert("memory.high".to_owned(), high.to_string());
            }
        }
        files
    }

    /// The files of a pod's cgroup: what its containers are promised has to be promised to it.
    pub fn of_pod(&self, spec: &PodSpec) -> Files {
        let asked = pod_requests(spec).get("memory").copied();
        let asked = asked.unwrap_or_default().value();
        match self.reserve && asked > 0 {
            true => protected(qos::class(spec), asked),
            false => Files::new(),
        }
    }
}

/// What is never taken from a Guaranteed pod, and from others only when there is nothing else to take.
pub fn protected(class: QosClass, bytes: i64) -> Files {
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
    fn swap_by_request() {
        let burstable = json!({"requests": {"memory": "100Mi"}});
        assert_eq!(swap(burstable.clone(), false), 50 * MI);
        assert_eq!(swap(burstable, true), 0);
        assert_eq!(swap(json!({}), false), 0);
        let more_than_there_is = json!({"requests": {"memory": "1001Mi"}});
        assert_eq!(swap(more_than_there_is, false), 0);
        let full = json!({"memory": "100Mi", "cpu": "1"});
        assert_eq!(swap(json!({"requests": full, "limits": full}), false), 0);
        let even = json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}});
        assert_eq!(swap(even, false), 0);
    }

    #[test]
    fn memory_that_is_held_back_or_protected() {
        let files = |resources: Value, reserve: bool| {
            let spec = spec(resources);
            let qos = MemoryQos {
                throttling: 0.9,
                reserve,
                allocatable: 1000,
                page: 10,
            };
            let files = qos.of_container(&spec, &spec.containers[0]).into_iter();
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
    fn a_pod_is_promised_what_its_containers_and_itself_need() {
        let files = |resources: Value, reserve: bool| {
            let mut spec = spec(resources);
            spec.overhead = serde_json::from_value(json!({"memory": "7"})).unwrap();
            let qos = MemoryQos {
                throttling: 0.9,
                reserve,
                allocatable: 1000,
                page: 10,
            };
            let files = qos.of_pod(&spec).into_iter();
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
