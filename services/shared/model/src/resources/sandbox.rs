//! The pod-level resources in a sandbox's CRI config: the sum of the containers, and the overhead of
//! the sandbox itself. Runtimes that run pods in virtual machines size these by them.

use k8s_openapi::api::core::v1::PodSpec;

use super::{
    AmountList, aggregate_limits, aggregate_requests, cpu_quota, cpu_shares, pod_level_lists,
};
use crate::quantity::{self, Amount};

/// Linux resources of a pod, as the CRI has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxResources {
    /// The CPU weight (`cpu.shares`).
    pub cpu_shares: u64,
    /// CPU time per period in microseconds; 0 for no limit.
    pub cpu_quota: i64,
    /// The period in microseconds; 0 where CPU limits are not enforced.
    pub cpu_period: i64,
    /// The memory limit in bytes; 0 for no limit.
    pub memory_limit: i64,
}

impl SandboxResources {
    /// The resources of a pod's containers together, or the pod-level ones; without overhead.
    pub fn from_containers(spec: &PodSpec, quota: bool, period_us: i64) -> Self {
        let (mut requests, mut limits) = (aggregate_requests(spec), aggregate_limits(spec));
        let (own_requests, own_limits) = pod_level_lists(spec);
        requests.extend(own_requests);
        limits.extend(own_limits);
        let cpu_limit = limits.get("cpu").copied().unwrap_or_default();
        let cpu = requests.get("cpu").copied().unwrap_or(cpu_limit);
        Self::new(cpu, cpu_limit, &limits, quota, period_us)
    }

    /// A pod's overhead, which is a request and a limit.
    pub fn from_overhead(spec: &PodSpec, quota: bool, period_us: i64) -> Option<Self> {
        let overhead = quantity::parse_list(Some(spec.overhead.as_ref()?));
        let cpu = overhead.get("cpu").copied().unwrap_or_default();
        Some(Self::new(cpu, cpu, &overhead, quota, period_us))
    }

    fn new(
        cpu: Amount,
        cpu_limit: Amount,
        limits: &AmountList,
        quota: bool,
        period_us: i64,
    ) -> Self {
        let memory = limits.get("memory").copied().unwrap_or_default();
        Self {
            cpu_shares: cpu_shares(cpu.millis()),
            cpu_quota: if quota {
                cpu_quota(cpu_limit.millis(), period_us)
            } else {
                0
            },
            cpu_period: if quota { period_us } else { 0 },
            memory_limit: memory.value().max(0),
        }
    }

    /// The containers' share of the resources of a pod's cgroup.
    pub fn minus_overhead(self, overhead: Option<&Self>) -> Self {
        let Some(overhead) = overhead else {
            return self;
        };
        let subtract = |limit: i64, overhead: i64| {
            if limit > 0 {
                (limit - overhead).max(0)
            } else {
                limit
            }
        };
        let shares = self.cpu_shares.saturating_sub(overhead.cpu_shares);
        Self {
            cpu_shares: shares.max(super::MIN_CPU_SHARES),
            cpu_quota: subtract(self.cpu_quota, overhead.cpu_quota),
            cpu_period: self.cpu_period,
            memory_limit: subtract(self.memory_limit, overhead.memory_limit),
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
            SandboxResources::from_containers(&spec, true, CPU_PERIOD_US),
            SandboxResources::from_overhead(&spec, true, CPU_PERIOD_US),
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
    fn containers_and_overhead_are_separate() {
        let limits = json!({"limits": {"cpu": "500m", "memory": "64"}});
        let containers = json!([{"name": "a", "resources": limits}, {"name": "b"}]);
        let (sum, overhead) = both(json!({"containers": containers}));
        assert_eq!((sum, overhead), (numbers(512, 50_000, 64), None));

        let (sum, overhead) = both(json!({"containers": containers,
            "overhead": {"cpu": "250m", "memory": "10"},
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "100"}}}));
        assert_eq!(sum, numbers(1024, 200_000, 100));
        assert_eq!(overhead, Some(numbers(256, 25_000, 10)));

        let total = numbers(1280, 225_000, 110);
        assert_eq!(total.minus_overhead(overhead.as_ref()), sum);
        assert_eq!(total.minus_overhead(None), total);
        let unbounded = numbers(2, 0, 0);
        assert_eq!(unbounded.minus_overhead(overhead.as_ref()), unbounded);
    }

    #[test]
    fn no_quota_without_enforced_limits() {
        let spec = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let sum = SandboxResources::from_containers(&spec, false, CPU_PERIOD_US);
        assert_eq!(
            (sum.cpu_shares, sum.cpu_quota, sum.cpu_period),
            (1024, 0, 0)
        );
    }
}
