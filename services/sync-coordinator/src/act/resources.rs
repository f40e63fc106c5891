//! Limits as the runtime takes them.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use polylet_cri::v1;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;
use polylet_model::resources::{self, MemoryQos, SandboxResources};

use super::Hands;
use super::cgroup::page_size;

/// A container's limits.
pub fn of_container(
    hands: &Hands,
    manifest: &Manifest,
    container: &Container,
) -> v1::LinuxContainerResources {
    let (spec, machine) = (manifest.spec(), hands.machine);
    let kubelet = &hands.ctx.config().kubelet;
    let period = period(kubelet);
    let limits = resources::container(
        spec,
        container,
        machine.memory,
        kubelet.cpu_cfs_quota,
        period,
    );
    let single = kubelet
        .single_process_oom_kill
        .unwrap_or(!machine.unified_cgroups);
    let mut unified: HashMap<String, String> = (machine.unified_cgroups && !single)
        .then(|| ("memory.oom.group".to_owned(), "1".to_owned()))
        .into_iter()
        .collect();
    if let Some(qos) = memory_qos(hands) {
        unified.extend(qos.of_container(spec, container));
    }
    let mut memory_swap_limit = 0;
    if machine.swap_controller && machine.unified_cgroups {
        let limited = kubelet.memory_swap.swap_behavior == "LimitedSwap";
        let critical = manifest.is_critical();
        let (memory, swap) = (machine.memory, machine.swap);
        let most = if limited {
            resources::limited_swap(spec, container, critical, memory, swap)
        } else {
            0
        };
        unified.insert("memory.swap.max".to_owned(), most.to_string());
    } else if machine.swap_controller {
        // Memory and swap together: no more than memory alone.
        memory_swap_limit = limits.memory_limit;
    }
    v1::LinuxContainerResources {
        cpu_shares: signed(limits.cpu_shares),
        cpu_quota: limits.cpu_quota,
        cpu_period: limits.cpu_period,
        memory_limit_in_bytes: limits.memory_limit,
        oom_score_adj: limits.oom_score_adj,
        hugepage_limits: huge_pages(&limits.huge_pages, hands.cgroups.page_sizes()),
        memory_swap_limit_in_bytes: memory_swap_limit,
        unified,
        ..Default::default()
    }
}

/// The rules of MemoryQoS, where its gate is on and cgroups can do it.
pub fn memory_qos(hands: &Hands) -> Option<MemoryQos> {
    let kubelet = &hands.ctx.config().kubelet;
    let on = hands.machine.unified_cgroups && kubelet.has_gate("MemoryQoS");
    on.then(|| MemoryQos {
        throttling: kubelet.memory_throttling_factor,
        reserve: kubelet.memory_reservation_policy == "TieredReservation",
        allocatable: hands.most.get("memory").copied().unwrap_or(0),
        page: page(),
    })
}

/// Bytes of a page of memory, as the kernel tells this process.
fn page() -> i64 {
    const AT_PAGESZ: usize = 6;
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let word = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?));
    let pairs = vector.chunks_exact(2 * size_of::<usize>());
    let mut pairs = pairs.map(|pair| pair.split_at(size_of::<usize>()));
    let found = pairs.find(|(key, _)| word(key) == Some(AT_PAGESZ));
    let size = found.and_then(|(_, value)| word(value));
    size.and_then(|size| i64::try_from(size).ok())
        .unwrap_or(4096)
}

/// The sum of a pod's containers, as its sandbox carries it.
pub fn of_pod(spec: &PodSpec, kubelet: &KubeletConfiguration) -> v1::LinuxContainerResources {
    let (quota, period) = (kubelet.cpu_cfs_quota, period(kubelet));
    of_sandbox(SandboxResources::of_containers(spec, quota, period))
}

/// A pod's overhead; empty where there is none.
pub fn of_overhead(spec: &PodSpec, kubelet: &KubeletConfiguration) -> v1::LinuxContainerResources {
    let (quota, period) = (kubelet.cpu_cfs_quota, period(kubelet));
    let overhead = SandboxResources::of_overhead(spec, quota, period);
    of_sandbox(overhead.unwrap_or_default())
}

/// A pod as a whole.
pub fn of_sandbox(whole: SandboxResources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_shares: signed(whole.cpu_shares),
        cpu_quota: whole.cpu_quota,
        cpu_period: whole.cpu_period,
        memory_limit_in_bytes: whole.memory_limit,
        ..Default::default()
    }
}

/// The period of CPU quotas in microseconds.
pub fn period(kubelet: &KubeletConfiguration) -> i64 {
    i64::try_from(kubelet.cpu_cfs_quota_period.as_micros()).unwrap_or(resources::CPU_PERIOD_US)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit for each page size that the kernel has: nothing of what was not asked for.
fn huge_pages(asked: &BTreeMap<String, u64>, page_sizes: &[String]) -> Vec<v1::HugepageLimit> {
    let mut limits: BTreeMap<String, u64> = page_sizes.iter().map(|s| (s.clone(), 0)).collect();
    limits.extend(asked.iter().map(|(size, limit)| (page_size(size), *limit)));
    let limits = limits.into_iter();
    limits
        .map(|(page_size, limit)| v1::HugepageLimit { page_size, limit })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_size_is_bounded() {
        let asked = [("2Mi".to_owned(), 4)].into();
        let limits = huge_pages(&asked, &["1GB".into(), "2MB".into()]);
        let limits: Vec<_> = limits.iter().map(|l| (&*l.page_size, l.limit)).collect();
        assert_eq!(limits, [("1GB", 0), ("2MB", 4)]);
    }

    #[test]
    fn pages_are_a_power_of_two() {
        assert!(page() >= 4096 && page() & (page() - 1) == 0);
    }
}
