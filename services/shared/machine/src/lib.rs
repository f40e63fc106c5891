//! What the machine is and has, read from the system: sync-coordinator admits pods by the same
//! numbers that status-reporter tells the cluster.
//!
//! - [`Machine`]: memory, processors, swap, the version of cgroups.
//! - [`capacity`] and [`allocatable`]: what the node has, and what pods may ask for together.
//! - [`Identity`]: which machine and system it is.
//! - [`fit`]: whether a node may run on it as the configuration stands.

mod fit;
mod identity;

use std::fs;
use std::path::{Path, PathBuf};

use polylet_kit::Config;
use polylet_model::node::{self, Numbers};
use polylet_model::quantity::Amount;

pub use fit::{Unfit, fit, memory_may_reach_disk};
pub use identity::{Identity, architecture};

/// The node in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors.
    pub cpus: u64,
    /// Whether cgroups are of version 2.
    pub unified_cgroups: bool,
    /// Bytes of swap.
    pub swap: u64,
    /// Whether cgroups can bound swap.
    pub swap_controller: bool,
}

impl Machine {
    /// Reads them; what cannot be read counts as nothing.
    pub fn read() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        let bytes = |name: &str| {
            let line = meminfo.lines().find(|line| line.starts_with(name));
            line.and_then(kib).unwrap_or(0).saturating_mul(1024)
        };
        let unified_cgroups = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Machine {
            memory: bytes("MemTotal:"),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            unified_cgroups,
            swap: bytes("SwapTotal:"),
            swap_controller: swap_file(unified_cgroups).is_some_and(|file| file.exists()),
        }
    }
}

/// The file that bounds the swap of our own cgroup.
fn swap_file(unified: bool) -> Option<PathBuf> {
    if !unified {
        return Some("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".into());
    }
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    Some(root.join(own).join("memory.swap.max"))
}

/// What pods may ask for together.
pub fn allocatable(config: &Config, machine: Machine) -> Numbers {
    let kubelet = &config.kubelet;
    let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
    let capacity = capacity(config, machine);
    node::allocatable(&capacity, &reserved, &kubelet.eviction_hard)
}

/// What the node has, whoever may use it.
pub fn capacity(config: &Config, machine: Machine) -> Numbers {
    let (kubelet, root) = (&config.kubelet, &config.polylet.root_directory);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut capacity = Numbers::from([
        ("cpu".to_owned(), number(machine.cpus.saturating_mul(1000))),
        ("memory".to_owned(), number(machine.memory)),
        (
            node::PODS.to_owned(),
            node::most_pods(kubelet.max_pods, kubelet.pods_per_core, machine.cpus),
        ),
    ]);
    if kubelet.local_storage_capacity_isolation
        && let Ok(disk) = rustix::fs::statvfs(existing(root))
    {
        let bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        capacity.insert(node::EPHEMERAL_STORAGE.to_owned(), number(bytes));
    }
    capacity.extend(huge_pages(Path::new("/sys/kernel/mm/hugepages")));
    capacity
}

/// The directory, or the nearest one above it that is there already.
fn existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|place| place.is_dir())
        .unwrap_or(Path::new("/"))
}

/// Memory set aside in huge pages, by page size.
fn huge_pages(at: &Path) -> Vec<(String, i64)> {
    let one = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let kib: i64 = size.parse().ok()?;
        let pages = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let pages: i64 = pages.trim().parse().ok()?;
        let size = Amount::from_units(kib.saturating_mul(1024));
        let name = format!("hugepages-{}", size.to_binary());
        Some((name, kib.saturating_mul(1024).saturating_mul(pages)))
    };
    fs::read_dir(at)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(one)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_named_as_the_api_does() {
        let dir = tempfile::tempdir().unwrap();
        for (name, pages) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "0")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), pages).unwrap();
        }
        fs::create_dir(dir.path().join("other")).unwrap();
        let mut found = huge_pages(dir.path());
        found.sort();
        let expected = [
            ("hugepages-1Gi".to_owned(), 0),
            ("hugepages-2Mi".to_owned(), 6 << 20),
        ];
        assert_eq!(found, expected);
    }
}
