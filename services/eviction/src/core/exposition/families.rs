//! The families of cAdvisor that have one series per cgroup. Names, types and help texts are cAdvisor's.

use polylet_metrics::FamilyKind::{self, Counter, Gauge};

use crate::core::stats::{CgroupStats, CpuTime, MemoryUsage};

/// A family with one series per cgroup, or none for a cgroup without the value.
pub(super) struct CgroupFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: FamilyKind,
    /// Whether the series have the time of the sample.
    pub(super) is_timed: bool,
    pub(super) value: fn(&CgroupStats) -> Option<f64>,
}

const fn timed(
    name: &'static str,
    help: &'static str,
    kind: FamilyKind,
    value: fn(&CgroupStats) -> Option<f64>,
) -> CgroupFamily {
    CgroupFamily {
        name,
        help,
        kind,
        is_timed: true,
        value,
    }
}

const fn spec(
    name: &'static str,
    help: &'static str,
    value: fn(&CgroupStats) -> Option<f64>,
) -> CgroupFamily {
    CgroupFamily {
        name,
        help,
        kind: Gauge,
        is_timed: false,
        value,
    }
}

fn cpu(stats: &CgroupStats, value: fn(&CpuTime) -> u64) -> Option<f64> {
    Some(value(&stats.cpu?) as f64)
}

fn cpu_seconds(stats: &CgroupStats, nanoseconds: fn(&CpuTime) -> u64) -> Option<f64> {
    Some(nanoseconds(&stats.cpu?) as f64 / 1e9)
}

/// Only of cgroups with a limit.
fn limited<T>(stats: &CgroupStats, value: Option<T>) -> Option<T> {
    value.filter(|_| stats.cpu_limits.quota.is_some())
}

fn memory(stats: &CgroupStats, value: fn(&MemoryUsage) -> u64) -> Option<f64> {
    Some(value(&stats.memory?) as f64)
}

pub(super) const FAMILIES: [CgroupFamily; 34] = [
    timed(
        "container_cpu_cfs_burst_periods_total",
        "Number of periods when burst occurs.",
        Counter,
        |stats| limited(stats, cpu(stats, |cpu| cpu.burst_periods)),
    ),
    timed(
        "container_cpu_cfs_burst_seconds_total",
        "Total time duration the container has been bursted.",
        Counter,
        |stats| limited(stats, cpu_seconds(stats, |cpu| cpu.burst)),
    ),
    timed(
        "container_cpu_cfs_periods_total",
        "Number of elapsed enforcement period intervals.",
        Counter,
        |stats| limited(stats, cpu(stats, |cpu| cpu.periods)),
    ),
    timed(
        "container_cpu_cfs_throttled_periods_total",
        "Number of throttled period intervals.",
        Counter,
        |stats| limited(stats, cpu(stats, |cpu| cpu.throttled_periods)),
    ),
    timed(
        "container_cpu_cfs_throttled_seconds_total",
        "Total time duration the container has been throttled.",
        Counter,
        |stats| limited(stats, cpu_seconds(stats, |cpu| cpu.throttled)),
    ),
    // cAdvisor does not measure load in the kubelet, either.
    timed(
        "container_cpu_load_average_10s",
        "Value of container cpu load average over the last 10 seconds.",
        Gauge,
        |_| Some(0.0),
    ),
    timed(
        "container_cpu_load_d_average_10s",
        "Value of container cpu load.d average over the last 10 seconds.",
        Gauge,
        |_| Some(0.0),
    ),
    timed(
        "container_cpu_system_seconds_total",
        "Cumulative system cpu time consumed in seconds.",
        Counter,
        |stats| cpu_seconds(stats, |cpu| cpu.system),
    ),
    timed(
        "container_cpu_user_seconds_total",
        "Cumulative user cpu time consumed in seconds.",
        Counter,
        |stats| cpu_seconds(stats, |cpu| cpu.user),
    ),
    timed(
        "container_file_descriptors",
        "Number of open file descriptors for the container.",
        Gauge,
        |stats| Some(stats.tasks.file_descriptors as f64),
    ),
    // No container has a health check of Docker.
    timed(
        "container_health_state",
        "The result of the container's health check",
        Gauge,
        |_| Some(-1.0),
    ),
    timed(
        "container_memory_cache",
        "Number of bytes of page cache memory.",
        Gauge,
        |stats| memory(stats, |memory| memory.cache),
    ),
    timed(
        "container_memory_failcnt",
        "Number of memory usage hits limits",
        Counter,
        |stats| memory(stats, |memory| memory.limit_hits),
    ),
    timed(
        "container_memory_kernel_usage",
        "Size of kernel memory allocated in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.kernel),
    ),
    timed(
        "container_memory_mapped_file",
        "Size of memory mapped files in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.mapped),
    ),
    timed(
        "container_memory_max_usage_bytes",
        "Maximum memory usage recorded in bytes",
        Gauge,
        |stats| memory(stats, |memory| memory.peak),
    ),
    timed(
        "container_memory_rss",
        "Size of RSS in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.rss),
    ),
    timed(
        "container_memory_swap",
        "Container swap usage in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.swap),
    ),
    timed(
        "container_memory_total_active_file_bytes",
        "Current total active file in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.active_file),
    ),
    timed(
        "container_memory_total_inactive_file_bytes",
        "Current total inactive file in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.inactive_file),
    ),
    timed(
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        Gauge,
        |stats| memory(stats, |memory| memory.usage),
    ),
    timed(
        "container_memory_working_set_bytes",
        "Current working set in bytes.",
        Gauge,
        |stats| memory(stats, |memory| memory.working_set),
    ),
    timed(
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
        Counter,
        |stats| memory(stats, |memory| memory.oom_kills),
    ),
    timed(
        "container_processes",
        "Number of processes running inside the container.",
        Gauge,
        |stats| Some(stats.tasks.processes.unwrap_or(0) as f64),
    ),
    timed(
        "container_sockets",
        "Number of open sockets for the container.",
        Gauge,
        |stats| Some(stats.tasks.sockets as f64),
    ),
    spec(
        "container_spec_cpu_period",
        "CPU period of the container.",
        |stats| Some(stats.cpu_limits.period as f64),
    ),
    spec(
        "container_spec_cpu_quota",
        "CPU quota of the container.",
        |stats| stats.cpu_limits.quota.map(|quota| quota as f64),
    ),
    spec(
        "container_spec_cpu_shares",
        "CPU share of the container.",
        |stats| Some(stats.cpu_limits.shares as f64),
    ),
    spec(
        "container_spec_memory_limit_bytes",
        "Memory limit for the container.",
        |stats| memory(stats, |memory| memory.limit.unwrap_or(0)),
    ),
    spec(
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        |stats| memory(stats, |memory| memory.reservation),
    ),
    spec(
        "container_spec_memory_swap_limit_bytes",
        "Memory swap limit for the container.",
        |stats| memory(stats, |memory| memory.raw_swap_limit.unwrap_or(0)),
    ),
    spec(
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        |stats| Some(stats.created_at?.as_second() as f64),
    ),
    timed(
        "container_threads",
        "Number of threads running inside the container",
        Gauge,
        |stats| Some(stats.tasks.threads as f64),
    ),
    timed(
        "container_threads_max",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        Gauge,
        |stats| Some(stats.tasks.max_threads as f64),
    ),
];

/// Pressure stall information, where the kernel has it for cgroups.
pub(super) const PRESSURE: [CgroupFamily; 6] = [
    timed(
        "container_pressure_cpu_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        Counter,
        |stats| Some(stats.pressure.cpu.full.total as f64 / 1e6),
    ),
    timed(
        "container_pressure_cpu_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to CPU congestion.",
        Counter,
        |stats| Some(stats.pressure.cpu.some.total as f64 / 1e6),
    ),
    timed(
        "container_pressure_io_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        Counter,
        |stats| Some(stats.pressure.io.full.total as f64 / 1e6),
    ),
    timed(
        "container_pressure_io_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to IO congestion.",
        Counter,
        |stats| Some(stats.pressure.io.some.total as f64 / 1e6),
    ),
    timed(
        "container_pressure_memory_stalled_seconds_total",
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        Counter,
        |stats| Some(stats.pressure.memory.full.total as f64 / 1e6),
    ),
    timed(
        "container_pressure_memory_waiting_seconds_total",
        "Total time duration tasks in the container have waited due to memory congestion.",
        Counter,
        |stats| Some(stats.pressure.memory.some.total as f64 / 1e6),
    ),
];
