//! What the runtime is told of a pod as a whole: its containers' sum, and what the sandbox itself
//! takes (`overhead`) apart from it. Runtimes that give a pod a machine of its own size it by that.

use k8s_openapi::api::core::v1::PodSpec;

use super::{List, aggregate_limits, aggregate_requests, cpu_quota, cpu_shares, own};
use crate::quantity::{self, Amount};

/// One of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxResources {
    /// Weight.
    pub cpu_shares: u64,
    /// Microseconds in each period; 0 for no bound.
    pub cpu_quota: i64,
    /// The period in microseconds; 0 where CPU limits are not enforced.
    pub cpu_period: i64,
    /// Bytes; 0 for no bound.
    pub memory_limit: i64,
}

impl SandboxResources {
    /// The sum of a pod's containers, or what the pod says as a whole; without overhead.
    pub fn of_containers(spec: &PodSpec, quota: bool, period_us: i64) -> Self {
        let (mut requests, mut limits) = (aggregate_requests(spec), aggregate_limits(spec));
        let (own_requests, own_limits) = own(spec);
        requests.extend(own_requests);
        limits.extend(own_limits);
        let most = limits.get("cpu").copied().unwrap_or_default();
        let cpu = requests.get("cpu").copied().unwrap_or(most);
        Self::of(cpu, most, &limits, quota, period_us)
    }

    /// A pod's overhead: it is asked for and is a limit at once.
    pub fn of_overhead(spec: &PodSpec, quota: bool, period_us: i64) -> Option<Self> {
        let overhead = quantity::read(Some(spec.overhead.as_ref()?));
        let cpu = overhead.get("cpu").copied().unwrap_or_default();
        Some(Self::of(cpu, cpu, &overhead, quota, period_us))
    }

    fn of(cpu: Amount, most: Amount, limits: &List, quota: bool, period_us: i64) -> Self {
        let memory = limits.get("memory").copied().unwrap_or_default();
        Self {
            cpu_shares: cpu_shares(cpu.millis()),
            cpu_quota: if quota {
                cpu_quota(most.millis(), period_us)
            } else {
                0
            },
            cpu_period: if quota { period_us } else { 0 },
            memory_limit: memory.value().max(0),
        }
    }

    /// What is left for the containers of what a pod's cgroup has.
    pub fn without(self, overhead: Option<&Self>) -> Self {
        let Some(overhead) = overhead else {
            return self;
        };
        let left = |whole: i64, part: i64| {
            if whole > 0 {
                (whole - part).max(0)
            } else {
                whole
            }
        };
        let shares = self.cpu_shares.saturating_sub(overhead.cpu_shares);
        Self {
            cpu_shares: shares.max(super::MIN_CPU_SHARES),
            cpu_quota: left(self.cpu_quota, overhead.cpu_quota),
            cpu_period: self.cpu_period,
            memory_limit: left(self.memory_limit, overhead.memory_limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resources::CPU_PERIOD_US;

    fn both(spec: Value) -> (SandboxResources, Option<SandboxResources>) {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        (
            SandboxResources::of_containers(&spec, true, CPU_PERIOD_US),
            SandboxResources::of_overhead(&spec, true, CPU_PERIOD_US),
        )
    }

    fn numbers(cpu_shares: u64, cpu_quota: i64, memory_limit: i64) -> SandboxResources {
        SandboxResources {
            cpu_shares,
            cpu_quota,
            cpu_period: CPU_PERIOD_US,
            memory_limit,
        }
    }

    #[test]
    fn containers_and_overhead_are_told_apart() {
        let limits = json!({"limits": {"cpu": "500m", "memory": "64"}});
        let containers = json!([{"name": "a", "resources": limits}, {"name": "b"}]);
        let (sum, overhead) = both(json!({"containers": containers}));
        assert_eq!((sum, overhead), (numbers(512, 50_000, 64), None));

        let (sum, overhead) = both(json!({"containers": containers,
            "overhead": {"cpu": "250m", "memory": "10"},
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "100"}}}));
        assert_eq!(sum, numbers(1024, 200_000, 100));
        assert_eq!(overhead, Some(numbers(256, 25_000, 10)));

        let whole = numbers(1280, 225_000, 110);
        assert_eq!(whole.without(overhead.as_ref()), sum);
        assert_eq!(whole.without(None), whole);
        let unbounded = numbers(2, 0, 0);
        assert_eq!(unbounded.without(overhead.as_ref()), unbounded);
    }

    #[test]
    fn without_enforced_limits_there_is_no_quota() {
        let spec = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let sum = SandboxResources::of_containers(&spec, false, CPU_PERIOD_US);
        assert_eq!(
            (sum.cpu_shares, sum.cpu_quota, sum.cpu_period),
            (1024, 0, 0)
        );
    }
}
