//! The node as a whole, from `/proc`.

use jiff::Timestamp;
use polylet_machine::meminfo::{self, MemInfo};
use procfs::{Current, CurrentSI, KernelStats, LoadAverage};

use crate::core::signal::Observation;

/// The memory of the node.
pub(crate) fn memory() -> Option<MemInfo> {
    match meminfo::read() {
        Ok(memory) => Some(memory),
        Err(error) => {
            let error = polylet_kit::report(&error);
            tracing::debug!(error, "failed to read node memory");
            None
        }
    }
}

/// Upstream's `memory.available`: the capacity less the working set.
pub(crate) fn available_memory(memory: &MemInfo) -> Observation {
    Observation {
        available: memory.total.saturating_sub(memory.working_set()),
        capacity: memory.total,
    }
}

/// Processes and threads: how many more can be started, and the limit.
pub(crate) fn pids() -> Option<Observation> {
    let running = u64::from(LoadAverage::current().ok()?.max);
    let pid_max = u64::try_from(procfs::sys::kernel::pid_max().ok()?).ok()?;
    let threads_max = u64::from(procfs::sys::kernel::threads_max().ok()?);
    let capacity = pid_max.min(threads_max);
    Some(Observation {
        available: capacity.saturating_sub(running),
        capacity,
    })
}

/// When the node was booted.
pub(crate) fn booted_at() -> Option<Timestamp> {
    let seconds = KernelStats::current().ok()?.btime;
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

/// Page faults of all processes since boot, and those that had to read.
pub(crate) fn page_faults() -> (u64, u64) {
    let counts = procfs::vmstat().unwrap_or_default();
    let count = |name| {
        let count = counts.get(name).copied().unwrap_or(0);
        u64::try_from(count).unwrap_or(0)
    };
    (count("pgfault"), count("pgmajfault"))
}

/// CPU time of the node since boot in nanoseconds.
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
