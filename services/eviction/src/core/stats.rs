//! What the node, its cgroups and its network interfaces have used, as it was sampled. Counters are since
//! the creation of the cgroup, in the units of the fields' names; what cannot be read is zero or missing.

use jiff::Timestamp;

/// The usage of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CgroupStats {
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) cpu: Option<CpuTime>,
    pub(crate) cpu_limits: CpuLimits,
    pub(crate) memory: Option<MemoryUsage>,
    pub(crate) io: Vec<DeviceIo>,
    pub(crate) pressure: Pressure,
    pub(crate) tasks: TaskUsage,
}

/// CPU time in nanoseconds, and how often it was withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) total: u64,
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) periods: u64,
    pub(crate) throttled_periods: u64,
    pub(crate) throttled: u64,
    pub(crate) burst_periods: u64,
    pub(crate) burst: u64,
}

/// The shares of cgroup v1, and quota and period in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuLimits {
    pub(crate) shares: u64,
    pub(crate) period: u64,
    /// `None` without a limit.
    pub(crate) quota: Option<u64>,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryUsage {
    pub(crate) usage: u64,
    pub(crate) peak: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) cache: u64,
    pub(crate) mapped: u64,
    pub(crate) kernel: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    /// Faults of the cgroup and those below it.
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    /// Faults of the cgroup's own processes.
    pub(crate) own_page_faults: u64,
    pub(crate) own_major_page_faults: u64,
    /// How often usage met the limit.
    pub(crate) limit_hits: u64,
    /// How many processes were killed because memory was short.
    pub(crate) oom_kills: u64,
    /// `None` without a limit.
    pub(crate) limit: Option<u64>,
    pub(crate) reservation: u64,
    pub(crate) swap: u64,
    /// Of swap alone; `None` without a limit.
    pub(crate) swap_limit: Option<u64>,
    /// As the kernel has it: with cgroup v1 of memory and swap together.
    pub(crate) raw_swap_limit: Option<u64>,
}

/// Reads and writes of a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceIo {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    /// `/dev/…`, or its numbers if it has no name.
    pub(crate) device: String,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// Pressure stall information. Zero where the kernel or cgroup v1 has none, as upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    pub(crate) cpu: Stalls,
    pub(crate) memory: Stalls,
    pub(crate) io: Stalls,
}

/// The stalls for lack of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stalls {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

/// The share of the last seconds in percent, and the total in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stall {
    pub(crate) total: u64,
    pub(crate) avg10: f64,
    pub(crate) avg60: f64,
    pub(crate) avg300: f64,
}

/// Processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskUsage {
    /// The processes of the cgroup itself; `None` when they were not counted.
    pub(crate) processes: Option<u64>,
    pub(crate) threads: u64,
    /// Zero without a limit.
    pub(crate) max_threads: u64,
    pub(crate) file_descriptors: u64,
    pub(crate) sockets: u64,
    /// The first process.
    pub(crate) first: Option<u32>,
    /// The soft limit of open files of the first process; -1 without a limit.
    pub(crate) max_open_files: Option<i64>,
}

/// The counters of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceStats {
    pub(crate) name: String,
    pub(crate) received: Traffic,
    pub(crate) sent: Traffic,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

/// A local file system and its block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountedFilesystem {
    /// The device, or where it is mounted if it has none.
    pub(crate) device: String,
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) disk: DiskStats,
}

/// Counters of a block device; times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskStats {
    pub(crate) reads: u64,
    pub(crate) reads_merged: u64,
    pub(crate) sectors_read: u64,
    pub(crate) read_time: u64,
    pub(crate) writes: u64,
    pub(crate) writes_merged: u64,
    pub(crate) sectors_written: u64,
    pub(crate) write_time: u64,
    pub(crate) in_progress: u64,
    pub(crate) io_time: u64,
    pub(crate) weighted_io_time: u64,
}
