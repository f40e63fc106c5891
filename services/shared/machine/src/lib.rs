//! Properties and capacity of the machine, read from the system: sync-coordinator admits pods by the
//! same numbers that status-reporter publishes.
//!
//! - [`Machine`]: memory, processors, swap, the version of cgroups.
//! - [`capacity`] and [`allocatable`]: the node's resources, and those available to pods.
//! - [`Identity`]: ids, kernel and operating system. [`boot_id`] and [`kernel_version`] alone.
//! - [`meminfo`] and [`mountinfo`]: memory, and the mount table.
//! - [`preflight`]: whether a node may start here with its configuration.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod identity;
pub mod meminfo;
pub mod mountinfo;
mod preflight;

use std::fs;
use std::path::{Path, PathBuf};

use polylet_kit::Config;
use polylet_model::node::{self, ResourceList};
use polylet_model::quantity::Amount;

pub use identity::{Identity, architecture, boot_id, kernel_version};
pub use preflight::{PreflightError, check, tmpfs_may_swap};

/// Resources of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Memory in bytes.
    pub memory: u64,
    /// Number of processors.
    pub cpus: u64,
    /// Whether cgroups have version 2.
    pub unified_cgroups: bool,
    /// Swap in bytes.
    pub swap: u64,
    /// Whether cgroups can limit swap.
    pub swap_controller: bool,
}

impl Machine {
    /// Reads the system; what cannot be read is zero or false.
    pub fn read() -> Self {
        let memory = meminfo::read().unwrap_or_default();
        let unified_cgroups = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Machine {
            memory: memory.total,
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            unified_cgroups,
            swap: memory.swap_total,
            swap_controller: swap_file(unified_cgroups).is_some_and(|file| file.exists()),
        }
    }
}

/// The file with the swap limit of our own cgroup.
fn swap_file(unified: bool) -> Option<PathBuf> {
    if !unified {
        return Some("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".into());
    }
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    Some(root.join(own).join("memory.swap.max"))
}

/// Resources available to pods: capacity less reserved resources and hard eviction thresholds.
pub fn allocatable(config: &Config, machine: Machine) -> ResourceList {
    let kubelet = &config.kubelet;
    let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
    let capacity = capacity(config, machine);
    node::allocatable(&capacity, &reserved, &kubelet.eviction_hard)
}

/// All resources of the node.
pub fn capacity(config: &Config, machine: Machine) -> ResourceList {
    let (kubelet, root) = (&config.kubelet, &config.polylet.root_directory);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut capacity = ResourceList::from([
        ("cpu".to_owned(), number(machine.cpus.saturating_mul(1000))),
        ("memory".to_owned(), number(machine.memory)),
        (
            node::PODS.to_owned(),
            node::pod_capacity(kubelet.max_pods, kubelet.pods_per_core, machine.cpus),
        ),
    ]);
    if kubelet.local_storage_capacity_isolation
        && let Ok(disk) = rustix::fs::statvfs(existing_ancestor(root))
    {
        let bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        capacity.insert(node::EPHEMERAL_STORAGE.to_owned(), number(bytes));
    }
    capacity.extend(huge_pages(Path::new("/sys/kernel/mm/hugepages")));
    capacity
}

/// The directory itself, or its nearest existing ancestor.
fn existing_ancestor(path: &Path) -> &Path {
    path.ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"))
}

/// Memory in preallocated huge pages, by resource name.
fn huge_pages(at: &Path) -> Vec<(String, i64)> {
    let resource = |entry: fs::DirEntry| {
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
        .filter_map(resource)
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
