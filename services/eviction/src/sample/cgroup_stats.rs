//! Everything that a cgroup reports, with cgroup v1 and v2.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::cgroup::{CgroupMounts, NO_LIMIT, key, number, text};
use super::processes;
use crate::core::stats::{
    CgroupStats, CpuLimits, CpuTime, DeviceIo, MemoryUsage, Pressure, Stall, Stalls, TaskUsage,
};

/// How much of a cgroup is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// CPU and memory.
    Basic,
    /// With pressure and the number of processes.
    Summary,
    /// With limits, I/O, and the files of processes.
    Full,
}

/// What ranks pods. What cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupUsage {
    pub(crate) memory: Option<MemoryUsage>,
    pub(crate) processes: Option<u64>,
}

impl CgroupMounts {
    /// Reads what ranks pods.
    pub(crate) fn usage(&self, cgroup: &str) -> CgroupUsage {
        let memory = self.dir("memory", cgroup);
        let memory = match self {
            Self::V2(_) => memory_v2(&memory, Detail::Basic),
            Self::V1(_) => memory_v1(&memory, Detail::Basic),
        };
        let processes = number(&self.dir("pids", cgroup), "pids.current");
        CgroupUsage { memory, processes }
    }

    /// Reads all that a cgroup reports, to a degree.
    pub(crate) fn stats(&self, cgroup: &str, detail: Detail) -> CgroupStats {
        let mut stats = match self {
            Self::V2(_) => stats_v2(&self.dir("", cgroup), detail),
            Self::V1(_) => stats_v1(|controller: &str| self.dir(controller, cgroup), detail),
        };
        if detail >= Detail::Summary {
            let procs = self.dir("cpu", cgroup).join("cgroup.procs");
            processes::count(&procs, detail == Detail::Full, &mut stats.tasks);
        }
        stats
    }
}

fn stats_v1(dir: impl Fn(&str) -> PathBuf, detail: Detail) -> CgroupStats {
    let (cpu, memory) = (dir("cpu"), dir("memory"));
    let mut stats = CgroupStats {
        created_at: created_at(&memory, "cgroup.clone_children"),
        cpu: number(&dir("cpuacct"), "cpuacct.usage").map(|total| CpuTime {
            total,
            ..CpuTime::default()
        }),
        memory: memory_v1(&memory, detail),
        ..CgroupStats::default()
    };
    if detail < Detail::Full {
        return stats;
    }
    if let Some(usage) = &mut stats.cpu {
        let ticks = text(&dir("cpuacct"), "cpuacct.stat");
        let seconds = procfs::ticks_per_second().max(1);
        let nanoseconds = |name| key(&ticks, name).unwrap_or(0) * (1_000_000_000 / seconds);
        (usage.user, usage.system) = (nanoseconds("user"), nanoseconds("system"));
        throttling(
            &text(&cpu, "cpu.stat"),
            usage,
            ("throttled_time", "burst_time"),
            1,
        );
    }
    stats.cpu_limits = CpuLimits {
        shares: number(&cpu, "cpu.shares").unwrap_or(0),
        period: number(&cpu, "cpu.cfs_period_us").unwrap_or(0),
        // -1 is no limit.
        quota: number(&cpu, "cpu.cfs_quota_us"),
    };
    stats.tasks = tasks(&dir("pids"));
    let blkio = dir("blkio");
    stats.io = io_v1(
        &text(&blkio, "blkio.throttle.io_service_bytes_recursive"),
        &text(&blkio, "blkio.throttle.io_serviced_recursive"),
    );
    stats
}

fn stats_v2(dir: &Path, detail: Detail) -> CgroupStats {
    let cpu_stat = text(dir, "cpu.stat");
    let time = |name| key(&cpu_stat, name).map(|us| us.saturating_mul(1000));
    let mut cpu = time("usage_usec").map(|total| CpuTime {
        total,
        user: time("user_usec").unwrap_or(0),
        system: time("system_usec").unwrap_or(0),
        ..CpuTime::default()
    });
    if let Some(usage) = &mut cpu {
        throttling(&cpu_stat, usage, ("throttled_usec", "burst_usec"), 1000);
    }
    let mut stats = CgroupStats {
        created_at: created_at(dir, "cgroup.events"),
        cpu,
        memory: memory_v2(dir, detail),
        ..CgroupStats::default()
    };
    if detail >= Detail::Summary {
        stats.pressure = Pressure {
            cpu: stalls(&text(dir, "cpu.pressure")),
            memory: stalls(&text(dir, "memory.pressure")),
            io: stalls(&text(dir, "io.pressure")),
        };
    }
    if detail == Detail::Full {
        stats.cpu_limits = cpu_limits_v2(dir);
        stats.tasks = tasks(dir);
        stats.io = text(dir, "io.stat").lines().filter_map(io_v2).collect();
    }
    stats
}

/// The counters of CPU bandwidth; `unit` is the nanoseconds in the file's unit of time.
fn throttling(stat: &str, usage: &mut CpuTime, times: (&str, &str), unit: u64) {
    let value = |name| key(stat, name).unwrap_or(0);
    usage.periods = value("nr_periods");
    usage.throttled_periods = value("nr_throttled");
    usage.throttled = value(times.0).saturating_mul(unit);
    usage.burst_periods = value("nr_bursts");
    usage.burst = value(times.1).saturating_mul(unit);
}

/// The weight as shares, as upstream converts it, and the limit.
fn cpu_limits_v2(dir: &Path) -> CpuLimits {
    let weight = number(dir, "cpu.weight").filter(|weight| (1..=10_000).contains(weight));
    let max = text(dir, "cpu.max");
    let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
    CpuLimits {
        shares: weight.map_or(0, |weight| 2 + (weight - 1) * 262_142 / 9_999),
        period: period.parse().unwrap_or(0),
        quota: quota.parse().ok(),
    }
}

fn memory_v1(dir: &Path, detail: Detail) -> Option<MemoryUsage> {
    let usage = number(dir, "memory.usage_in_bytes")?;
    let stat = text(dir, "memory.stat");
    let value = |name| key(&stat, name).unwrap_or(0);
    let limited = |file| number(dir, file).filter(|limit| *limit < NO_LIMIT);
    let limit = limited("memory.limit_in_bytes");
    let raw_swap_limit = limited("memory.memsw.limit_in_bytes");
    let inactive_file = value("total_inactive_file");
    let mut memory = MemoryUsage {
        usage,
        working_set: usage.saturating_sub(inactive_file),
        rss: value("total_rss"),
        cache: value("total_cache"),
        mapped: value("total_mapped_file"),
        active_file: value("total_active_file"),
        inactive_file,
        page_faults: value("total_pgfault"),
        major_page_faults: value("total_pgmajfault"),
        own_page_faults: value("pgfault"),
        own_major_page_faults: value("pgmajfault"),
        limit,
        swap: value("total_swap"),
        swap_limit: raw_swap_limit.map(|both| both.saturating_sub(limit.unwrap_or(0))),
        raw_swap_limit,
        ..MemoryUsage::default()
    };
    if detail == Detail::Full {
        let value = |file| number(dir, file).unwrap_or(0);
        memory.peak = value("memory.max_usage_in_bytes");
        memory.kernel = value("memory.kmem.usage_in_bytes");
        memory.limit_hits = value("memory.failcnt");
        memory.oom_kills = key(&text(dir, "memory.oom_control"), "oom_kill").unwrap_or(0);
        memory.reservation = limited("memory.soft_limit_in_bytes").unwrap_or(0);
    }
    Some(memory)
}

fn memory_v2(dir: &Path, detail: Detail) -> Option<MemoryUsage> {
    let usage = number(dir, "memory.current")?;
    let stat = text(dir, "memory.stat");
    let value = |name| key(&stat, name).unwrap_or(0);
    let inactive_file = value("inactive_file");
    let (page_faults, major_page_faults) = (value("pgfault"), value("pgmajfault"));
    let swap_limit = number(dir, "memory.swap.max");
    let mut memory = MemoryUsage {
        usage,
        working_set: usage.saturating_sub(inactive_file),
        rss: value("anon"),
        cache: value("file"),
        mapped: value("file_mapped"),
        kernel: value("kernel"),
        active_file: value("active_file"),
        inactive_file,
        page_faults,
        major_page_faults,
        own_page_faults: page_faults,
        own_major_page_faults: major_page_faults,
        limit: number(dir, "memory.max"),
        swap: number(dir, "memory.swap.current").unwrap_or(0),
        swap_limit,
        raw_swap_limit: swap_limit,
        ..MemoryUsage::default()
    };
    if detail == Detail::Full {
        memory.peak = number(dir, "memory.peak").unwrap_or(0);
        let events = text(dir, "memory.events");
        memory.limit_hits = key(&events, "max").unwrap_or(0);
        memory.oom_kills = key(&events, "oom_kill").unwrap_or(0);
        memory.reservation = number(dir, "memory.min").unwrap_or(0);
    }
    Some(memory)
}

fn tasks(dir: &Path) -> TaskUsage {
    TaskUsage {
        threads: number(dir, "pids.current").unwrap_or(0),
        max_threads: number(dir, "pids.max").unwrap_or(0),
        ..TaskUsage::default()
    }
}

/// Lines of `8:0 Read 4096`, of bytes and of operations.
fn io_v1(bytes: &str, operations: &str) -> Vec<DeviceIo> {
    let mut devices: Vec<DeviceIo> = Vec::new();
    for (is_bytes, line) in bytes
        .lines()
        .map(|line| (true, line))
        .chain(operations.lines().map(|line| (false, line)))
    {
        let mut words = line.split_whitespace();
        let (Some(device), Some(operation)) = (words.next(), words.next()) else {
            continue;
        };
        let (Some((major, minor)), Some(value)) = (numbers(device), words.next()) else {
            continue;
        };
        let value = value.parse().unwrap_or(0);
        let index = devices
            .iter()
            .position(|known| (known.major, known.minor) == (major, minor));
        let index = index.unwrap_or_else(|| {
            devices.push(device_io(major, minor));
            devices.len() - 1
        });
        if let Some(device) = devices.get_mut(index) {
            match (is_bytes, operation) {
                (true, "Read") => device.read_bytes = value,
                (true, "Write") => device.written_bytes = value,
                (false, "Read") => device.reads = value,
                (false, "Write") => device.writes = value,
                _ => {}
            }
        }
    }
    devices
}

/// A line of `8:0 rbytes=4096 wbytes=0 rios=1 wios=0`.
fn io_v2(line: &str) -> Option<DeviceIo> {
    let mut words = line.split_whitespace();
    let (major, minor) = numbers(words.next()?)?;
    let mut io = device_io(major, minor);
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let value = value.parse().unwrap_or(0);
        match name {
            "rbytes" => io.read_bytes = value,
            "wbytes" => io.written_bytes = value,
            "rios" => io.reads = value,
            "wios" => io.writes = value,
            _ => {}
        }
    }
    Some(io)
}

fn numbers(device: &str) -> Option<(u64, u64)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn device_io(major: u64, minor: u64) -> DeviceIo {
    let uevent = format!("/sys/dev/block/{major}:{minor}/uevent");
    let uevent = fs::read_to_string(uevent).unwrap_or_default();
    let name = uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="));
    DeviceIo {
        major,
        minor,
        device: match name {
            Some(name) => format!("/dev/{name}"),
            None => format!("{major}:{minor}"),
        },
        ..DeviceIo::default()
    }
}

/// Lines of `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and `full …`.
pub(crate) fn stalls(text: &str) -> Stalls {
    let mut stalls = Stalls::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let stall = match words.next() {
            Some("some") => &mut stalls.some,
            Some("full") => &mut stalls.full,
            _ => continue,
        };
        *stall = words.filter_map(|word| word.split_once('=')).fold(
            Stall::default(),
            |mut stall, (name, value)| {
                let share = || value.parse().ok().filter(|share: &f64| share.is_finite());
                match name {
                    "total" => stall.total = value.parse().unwrap_or(0),
                    "avg10" => stall.avg10 = share().unwrap_or(0.0),
                    "avg60" => stall.avg60 = share().unwrap_or(0.0),
                    "avg300" => stall.avg300 = share().unwrap_or(0.0),
                    _ => {}
                }
                stall
            },
        );
    }
    stalls
}

/// Whether the kernel has pressure stall information.
pub(crate) fn has_pressure() -> bool {
    Path::new("/proc/pressure/cpu").exists()
}

/// As cAdvisor: the older one of the directory and of a file that is not written later.
fn created_at(dir: &Path, file: &str) -> Option<Timestamp> {
    let modified = |path: &Path| fs::metadata(path).ok()?.modified().ok();
    let times = [modified(dir), modified(&dir.join(file))];
    let oldest = times.into_iter().flatten().min()?;
    Timestamp::try_from(oldest).ok()
}

#[cfg(test)]
#[path = "cgroup_stats_tests.rs"]
mod tests;
