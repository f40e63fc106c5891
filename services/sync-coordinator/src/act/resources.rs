//! Limits as the runtime takes them, and the machine that they are parts of.

use std::path::Path;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use polylet_cri::v1;
use polylet_kit::config::KubeletConfiguration;
use polylet_model::resources;

/// The node in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub cpus: u64,
    /// Whether cgroups are of version 2.
    pub unified_cgroups: bool,
}

impl Machine {
    /// Reads them; what cannot be read counts as nothing.
    pub fn read() -> Self {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        let total = meminfo
            .lines()
            .find(|line| line.starts_with("MemTotal:"))
            .and_then(kib);
        Machine {
            memory: total.unwrap_or(0).saturating_mul(1024),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            unified_cgroups: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
        }
    }
}

/// A container's limits.
pub fn of_container(
    spec: &PodSpec,
    container: &Container,
    machine: Machine,
    kubelet: &KubeletConfiguration,
) -> v1::LinuxContainerResources {
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
    let group = (machine.unified_cgroups && !single)
        .then(|| ("memory.oom.group".to_owned(), "1".to_owned()));
    v1::LinuxContainerResources {
        cpu_shares: signed(limits.cpu_shares),
        cpu_quota: limits.cpu_quota,
        cpu_period: limits.cpu_period,
        memory_limit_in_bytes: limits.memory_limit,
        oom_score_adj: limits.oom_score_adj,
        hugepage_limits: limits
            .huge_pages
            .into_iter()
            .map(|(size, limit)| v1::HugepageLimit {
                page_size: page_size(&size),
                limit,
            })
            .collect(),
        unified: group.into_iter().collect(),
        ..Default::default()
    }
}

/// The sum of a pod's containers, as its sandbox carries it.
pub fn of_pod(spec: &PodSpec, kubelet: &KubeletConfiguration) -> v1::LinuxContainerResources {
    let whole = resources::pod(spec, kubelet.cpu_cfs_quota, period(kubelet));
    v1::LinuxContainerResources {
        cpu_shares: signed(whole.cpu_shares),
        cpu_quota: whole.cpu_quota.unwrap_or(0),
        cpu_period: whole.cpu_period,
        memory_limit_in_bytes: whole.memory_limit.unwrap_or(0),
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

/// The runtime says `2MB` where the API says `2Mi`.
fn page_size(api: &str) -> String {
    match api.strip_suffix('i') {
        Some(stem) => format!("{stem}B"),
        None => api.to_owned(),
    }
}
