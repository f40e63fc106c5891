//! Resource limits in the messages of the CRI.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use polylet_cri::v1;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::Manifest;
use polylet_model::resources::{self, MemoryQos, SandboxResources};

use super::RuntimeManager;

/// The resources of a container.
pub fn container_resources(
    manager: &RuntimeManager,
    manifest: &Manifest,
    container: &Container,
) -> v1::LinuxContainerResources {
    let (spec, machine) = (manifest.spec(), manager.machine);
    let kubelet = &manager.ctx.config().kubelet;
    let period = period(kubelet);
    let limits = resources::container_resources(
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
    if let Some(qos) = memory_qos(manager) {
        unified.extend(qos.container_files(spec, container));
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
        // The limit of memory and swap together; no swap beyond memory.
        memory_swap_limit = limits.memory_limit;
    }
    v1::LinuxContainerResources {
        cpu_shares: signed(limits.cpu_shares),
        cpu_quota: limits.cpu_quota,
        cpu_period: limits.cpu_period,
        memory_limit_in_bytes: limits.memory_limit,
        oom_score_adj: limits.oom_score_adj,
        hugepage_limits: huge_pages(&limits.huge_pages, manager.cgroups.page_sizes()),
        memory_swap_limit_in_bytes: memory_swap_limit,
        unified,
        ..Default::default()
    }
}

/// The rules of `MemoryQoS`, if its gate is on and cgroups are v2.
pub fn memory_qos(manager: &RuntimeManager) -> Option<MemoryQos> {
    let kubelet = &manager.ctx.config().kubelet;
    let on = manager.machine.unified_cgroups && kubelet.has_gate("MemoryQoS");
    on.then(|| MemoryQos {
        throttling: kubelet.memory_throttling_factor,
        reserve: kubelet.memory_reservation_policy == "TieredReservation",
        allocatable: manager.unreserved.get("memory").copied().unwrap_or(0),
        page: page_bytes(),
    })
}

/// The size of a memory page in bytes, from the auxiliary vector.
fn page_bytes() -> i64 {
    const AT_PAGESZ: usize = 6;
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let number = |bytes: &[u8]| Some(usize::from_ne_bytes(bytes.try_into().ok()?));
    let pairs = vector.chunks_exact(2 * size_of::<usize>());
    let mut pairs = pairs.map(|pair| pair.split_at(size_of::<usize>()));
    let found = pairs.find(|(key, _)| number(key) == Some(AT_PAGESZ));
    let size = found.and_then(|(_, value)| number(value));
    size.and_then(|size| i64::try_from(size).ok())
        .unwrap_or(4096)
}

/// The sum of a pod's containers, for its sandbox.
pub fn pod_resources(
    spec: &PodSpec,
    kubelet: &KubeletConfiguration,
) -> v1::LinuxContainerResources {
    let (quota, period) = (kubelet.cpu_cfs_quota, period(kubelet));
    sandbox_resources(SandboxResources::from_containers(spec, quota, period))
}

/// A pod's overhead; empty without one.
pub fn overhead_resources(
    spec: &PodSpec,
    kubelet: &KubeletConfiguration,
) -> v1::LinuxContainerResources {
    let (quota, period) = (kubelet.cpu_cfs_quota, period(kubelet));
    let overhead = SandboxResources::from_overhead(spec, quota, period);
    sandbox_resources(overhead.unwrap_or_default())
}

/// The resources of a sandbox.
pub fn sandbox_resources(sandbox: SandboxResources) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_shares: signed(sandbox.cpu_shares),
        cpu_quota: sandbox.cpu_quota,
        cpu_period: sandbox.cpu_period,
        memory_limit_in_bytes: sandbox.memory_limit,
        ..Default::default()
    }
}

/// The name of a huge page size in the kernel: `2MB` for the API's `2Mi`.
pub fn page_size(api: &str) -> String {
    match api.strip_suffix('i') {
        Some(stem) => format!("{stem}B"),
        None => api.to_owned(),
    }
}

/// The period of CPU quotas in microseconds.
pub fn period(kubelet: &KubeletConfiguration) -> i64 {
    i64::try_from(kubelet.cpu_cfs_quota_period.as_micros()).unwrap_or(resources::CPU_PERIOD_US)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A limit for each page size of the kernel; zero for sizes without a request.
fn huge_pages(requested: &BTreeMap<String, u64>, page_sizes: &[String]) -> Vec<v1::HugepageLimit> {
    let mut limits: BTreeMap<String, u64> = page_sizes.iter().map(|s| (s.clone(), 0)).collect();
    limits.extend(
        requested
            .iter()
            .map(|(size, limit)| (page_size(size), *limit)),
    );
    let limits = limits.into_iter();
    limits
        .map(|(page_size, limit)| v1::HugepageLimit { page_size, limit })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_size_has_a_limit() {
        let requested = [("2Mi".to_owned(), 4)].into();
        let limits = huge_pages(&requested, &["1GB".into(), "2MB".into()]);
        let limits: Vec<_> = limits.iter().map(|l| (&*l.page_size, l.limit)).collect();
        assert_eq!(limits, [("1GB", 0), ("2MB", 4)]);
    }

    #[test]
    fn page_size_is_a_power_of_two() {
        assert!(page_bytes() >= 4096 && page_bytes() & (page_bytes() - 1) == 0);
    }
}
