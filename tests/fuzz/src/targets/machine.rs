//! Files of the kernel: mounts, memory, cgroups, the kernel log.

use std::cell::LazyCell;

use polylet_machine::{meminfo, mountinfo};

use crate::input::{halves, select, text};
use crate::scratch::FuzzScratch;

thread_local! {
    static SCRATCH: LazyCell<FuzzScratch> = LazyCell::new(FuzzScratch::new);
}

/// One file of the kernel, or those of one cgroup.
pub(super) fn machine(data: &[u8]) {
    let (kind, data) = select(data, 5);
    match kind {
        0 => drop(mountinfo::parse(data)),
        // Invalid files are errors.
        1 => drop(meminfo::parse(data)),
        2 => polylet_eviction::fuzzing::kernel_log(data.split(|byte| *byte == 0)),
        3 => cgroup(data),
        _ => polylet_sync_coordinator::fuzzing::cgroup_values(text(data)),
    }
}

/// A file with numbers and one with statistics, in the directories of both versions.
fn cgroup(data: &[u8]) {
    let (number, statistics) = halves(data);
    SCRATCH.with(|scratch| {
        for file in [
            "pod/memory.current",
            "pod/memory.max",
            "pod/pids.current",
            "memory/pod/memory.usage_in_bytes",
            "memory/pod/memory.limit_in_bytes",
            "cpuacct/pod/cpuacct.usage",
        ] {
            scratch.write(file, number);
        }
        for file in ["pod/memory.stat", "pod/cpu.stat", "memory/pod/memory.stat"] {
            scratch.write(file, statistics);
        }
        polylet_eviction::fuzzing::cgroup_files(scratch.path());
    });
}
