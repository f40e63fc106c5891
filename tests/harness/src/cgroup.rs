use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{HarnessError, file};
use crate::{machine, wait};

/// Mount points of all cgroup hierarchies: one for v2, one per controller for v1.
pub fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
        })
        .collect()
}

/// Whether the machine has only the unified hierarchy (cgroup v2).
pub fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The cgroup driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestCgroupDriver {
    /// `cgroupfs`: directories created directly.
    Cgroupfs,
    /// `systemd`: slices; requires systemd as init.
    Systemd,
}

impl TestCgroupDriver {
    /// Reads POLYLET_TEST_CGROUP_DRIVER (`cgroupfs` or `systemd`); `cgroupfs` if unset.
    pub fn from_env() -> Self {
        match std::env::var("POLYLET_TEST_CGROUP_DRIVER").as_deref() {
            Ok("systemd") => Self::Systemd,
            _ => Self::Cgroupfs,
        }
    }

    /// The value of `cgroupDriver` in `KubeletConfiguration`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }

    /// Path of a run's cgroup relative to the hierarchy's mount point.
    pub(crate) fn name(self, id: &str) -> String {
        match self {
            Self::Cgroupfs => format!("/polylet-{id}"),
            Self::Systemd => format!("/polylet_{id}.slice"),
        }
    }

    /// Path of the parent cgroup of all pods on a machine with one node.
    pub(crate) fn standard_name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "/kubepods",
            Self::Systemd => "/kubepods.slice",
        }
    }
}

/// Creates a cgroup in every hierarchy.
///
/// # Errors
/// Fails if a cgroup cannot be created.
pub fn create(name: &str) -> Result<(), HarnessError> {
    for hierarchy in hierarchies() {
        if is_v2() {
            // Missing or already enabled controllers are not an error.
            for controller in ["cpuset", "cpu", "io", "memory", "pids", "hugetlb"] {
                let path = hierarchy.join("cgroup.subtree_control");
                let _ = fs::write(path, format!("+{controller}"));
            }
        }
        let path = below(&hierarchy, name);
        file("make", &path, fs::create_dir_all(&path))?;
        for list in ["cpuset.cpus", "cpuset.mems"] {
            // cgroup v1 requires both files to be set before a process may join.
            if let Ok(text) = fs::read_to_string(hierarchy.join(list))
                && !is_v2()
            {
                let target = path.join(list);
                file("write", &target, fs::write(&target, text))?;
            }
        }
    }
    Ok(())
}

/// Existing directories of a cgroup, one per hierarchy.
pub fn existing(name: &str) -> Vec<PathBuf> {
    let all = hierarchies()
        .into_iter()
        .map(|hierarchy| below(&hierarchy, name));
    all.filter(|path| path.exists()).collect()
}

/// Kills every process in the cgroup and removes it with its descendants.
pub fn remove(name: &str) {
    if name.trim_matches('/').is_empty() {
        return;
    }
    if name.ends_with(".slice") {
        let slice = name.trim_matches('/');
        // Without systemd there is no slice to stop.
        let _ = machine::run(Path::new("systemctl"), &["stop", slice]);
    }
    wait::until_blocking(Duration::from_secs(5), || {
        let roots = existing(name);
        for root in &roots {
            remove_below(root);
        }
        roots.is_empty()
    });
}

fn remove_below(dir: &Path) {
    for pid in fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
    {
        if let Ok(pid) = pid.parse() {
            machine::signal(pid, Signal::KILL);
        }
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
        }
    }
    // EBUSY until the last process is reaped; the caller retries.
    let _ = fs::remove_dir(dir);
}

fn below(hierarchy: &Path, name: &str) -> PathBuf {
    hierarchy.join(name.trim_start_matches('/'))
}
