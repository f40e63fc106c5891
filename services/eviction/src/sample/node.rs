//! The node as a whole, from `/proc`.

use procfs::{Current, CurrentSI, KernelStats, LoadAverage, Meminfo};

use crate::core::signal::Level;

/// Memory of the node, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) usage: u64,
    pub(crate) working_set: u64,
    pub(crate) rss: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
}

impl Memory {
    /// Upstream's `memory.available`: capacity less the working set.
    pub(crate) fn level(&self) -> Level {
        Level {
            available: self.total.saturating_sub(self.working_set),
            capacity: self.total,
        }
    }
}

/// Reads `/proc/meminfo`. Used memory is what is not free; the working set leaves out file pages
/// that have not been touched for long, as cAdvisor counts it for the root cgroup.
pub(crate) fn memory() -> Option<Memory> {
    let info = Meminfo::current().ok()?;
    let usage = info.mem_total.saturating_sub(info.mem_free);
    Some(Memory {
        total: info.mem_total,
        usage,
        working_set: usage.saturating_sub(info.inactive_file.unwrap_or(0)),
        rss: info.anon_pages.unwrap_or(0),
        swap_total: info.swap_total,
        swap_free: info.swap_free,
    })
}

/// Processes and threads: those that may still be started, and how many there may be at all.
pub(crate) fn pids() -> Option<Level> {
    let running = u64::from(LoadAverage::current().ok()?.max);
    let pid_max = u64::try_from(procfs::sys::kernel::pid_max().ok()?).ok()?;
    let threads_max = u64::from(procfs::sys::kernel::threads_max().ok()?);
    let capacity = pid_max.min(threads_max);
    Some(Level {
        available: capacity.saturating_sub(running),
        capacity,
    })
}

/// Processor time used by everything on the node since boot, nanoseconds.
pub(crate) fn cpu_nanoseconds() -> Option<u64> {
    let total = KernelStats::current().ok()?.total;
    let ticks = total.user
        + total.nice
        + total.system
        + total.irq.unwrap_or(0)
        + total.softirq.unwrap_or(0);
    let per_second = procfs::ticks_per_second().max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(per_second)).ok()
}
