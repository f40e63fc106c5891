//! The agent itself without disk space or file descriptors.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use polylet_e2e::ok;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::faulty_node::FaultyNode;

/// A file that fills a disk; removed on drop.
pub(crate) struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        // The disk is removed with the node at the latest.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Fills the disk of a directory to its last byte.
pub(crate) fn fill(dir: &Path) -> Filler {
    let path = dir.join("filler");
    let mut file = ok(File::create(&path));
    for size in [1 << 20, 4096, 1] {
        let part = vec![0_u8; size];
        while file.write_all(&part).is_ok() {}
    }
    Filler(path)
}

/// The limits of processes before they were lowered; restored on drop.
pub(crate) struct LoweredLimits(Vec<(Pid, Rlimit)>);

impl Drop for LoweredLimits {
    fn drop(&mut self) {
        for (pid, limit) in &self.0 {
            // A process that has ended needs none.
            let _ = prlimit(Some(*pid), Resource::Nofile, *limit);
        }
    }
}

/// Leaves no service a file descriptor beyond those that it has.
pub(crate) async fn no_file_descriptors(node: &FaultyNode) -> LoweredLimits {
    let mut before = Vec::new();
    for service in ok(node.node.services().await) {
        let Some(pid) = i32::try_from(service.pid).ok().and_then(Pid::from_raw) else {
            continue;
        };
        let entries = ok(std::fs::read_dir(format!("/proc/{}/fd", service.pid)));
        let open: BTreeSet<u64> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        // The kernel hands out the lowest free number, which must be below the limit.
        let lowest_free = (0..).find(|number| !open.contains(number));
        let lowered = Rlimit {
            current: lowest_free,
            maximum: hard_limit(service.pid),
        };
        before.push((pid, ok(prlimit(Some(pid), Resource::Nofile, lowered))));
    }
    LoweredLimits(before)
}

fn hard_limit(pid: u32) -> Option<u64> {
    let limits = ok(std::fs::read_to_string(format!("/proc/{pid}/limits")));
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line?.split_whitespace().nth(1)?.parse().ok()
}
