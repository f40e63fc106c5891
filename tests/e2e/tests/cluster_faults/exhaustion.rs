//! The agent itself without disk space or file descriptors.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_e2e::ok;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::faulty_node::FaultyNode;

/// How often space that somebody freed is taken.
const REFILL_PERIOD: Duration = Duration::from_millis(20);
/// How long the services have no file descriptor before they are looked at: longer than the watchdog
/// waits for a ping.
const WITHOUT_DESCRIPTORS: Duration = Duration::from_secs(40);

/// A file that keeps a disk full; removed on drop.
pub(crate) struct Filler {
    path: PathBuf,
    refill: JoinHandle<()>,
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.refill.abort();
        // The disk is removed with the node at the latest.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Fills the disk of the state directory.
pub(crate) async fn full_state(node: &FaultyNode) -> Filler {
    fill(&node.node.dirs().state)
}

/// Fills the disk of the run directory.
pub(crate) async fn full_run(node: &FaultyNode) -> Filler {
    fill(&node.node.dirs().run)
}

/// Fills the disk of a directory to its last byte, and keeps it so.
fn fill(dir: &Path) -> Filler {
    let path = dir.join("filler");
    let mut file = ok(OpenOptions::new().create_new(true).append(true).open(&path));
    write_all_that_fits(&mut file);
    let refill = tokio::spawn(async move {
        loop {
            sleep(REFILL_PERIOD).await;
            write_all_that_fits(&mut file);
        }
    });
    Filler { path, refill }
}

fn write_all_that_fits(file: &mut File) {
    for size in [1 << 20, 4096, 1] {
        let part = vec![0_u8; size];
        while file.write_all(&part).is_ok() {}
    }
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

/// Leaves no service a file descriptor beyond those that it has. The supervisor keeps its limit: it is
/// what `polylet status` asks.
pub(crate) async fn no_file_descriptors(node: &FaultyNode) -> LoweredLimits {
    let until = Instant::now() + WITHOUT_DESCRIPTORS;
    let mut before = Vec::new();
    let services = ok(node.node.services().await);
    for service in services.iter().filter(|one| one.name != "supervisor") {
        let Some(pid) = i32::try_from(service.pid).ok().and_then(Pid::from_raw) else {
            continue;
        };
        let lowered = Rlimit {
            current: Some(lowest_free_number(service.pid).await),
            maximum: hard_limit(service.pid),
        };
        before.push((pid, ok(prlimit(Some(pid), Resource::Nofile, lowered))));
    }
    let lowered = LoweredLimits(before);
    // What is verified after this time was so for all of it.
    sleep_until(until).await;
    lowered
}

/// The lowest number that is free at some moment: the kernel hands it out next, which must be below the
/// limit. At other moments a connection of short duration may have it.
async fn lowest_free_number(pid: u32) -> u64 {
    let mut lowest = u64::MAX;
    for _ in 0..50 {
        let entries = ok(std::fs::read_dir(format!("/proc/{pid}/fd")));
        let open: BTreeSet<u64> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let free = (0..).find(|number| !open.contains(number));
        lowest = lowest.min(free.unwrap_or(u64::MAX));
        sleep(Duration::from_millis(5)).await;
    }
    lowest
}

fn hard_limit(pid: u32) -> Option<u64> {
    let limits = ok(std::fs::read_to_string(format!("/proc/{pid}/limits")));
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line?.split_whitespace().nth(1)?.parse().ok()
}
