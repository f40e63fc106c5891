use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{HarnessError, file};
use crate::{machine, wait};

/// The mount points of all cgroup hierarchies: one for v2, one per controller for v1.
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

/// Whether the machine has the unified hierarchy alone.
pub fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Who makes cgroups: the processes themselves, or systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Directories, made by whoever needs them.
    Cgroupfs,
    /// Slices; needs a machine that systemd runs.
    Systemd,
}

impl Driver {
    /// From POLYLET_TEST_CGROUP_DRIVER (`cgroupfs` or `systemd`); `cgroupfs` when unset.
    pub fn from_env() -> Self {
        match std::env::var("POLYLET_TEST_CGROUP_DRIVER").as_deref() {
            Ok("systemd") => Self::Systemd,
            _ => Self::Cgroupfs,
        }
    }

    /// As `KubeletConfiguration` calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }

    /// A run's cgroup, from the mount of a hierarchy.
    pub(crate) fn name(self, id: &str) -> String {
        match self {
            Self::Cgroupfs => format!("/polylet-{id}"),
            Self::Systemd => format!("/polylet_{id}.slice"),
        }
    }
}

/// Makes a cgroup in every hierarchy.
///
/// # Errors
/// When it cannot be made.
pub fn create(name: &str) -> Result<(), HarnessError> {
    for hierarchy in hierarchies() {
        if is_v2() {
            // A controller that the kernel lacks, or that is on already, is no reason to stop.
            for controller in ["cpuset", "cpu", "io", "memory", "pids", "hugetlb"] {
                let path = hierarchy.join("cgroup.subtree_control");
                let _ = fs::write(path, format!("+{controller}"));
            }
        }
        let path = below(&hierarchy, name);
        file("make", &path, fs::create_dir_all(&path))?;
        for list in ["cpuset.cpus", "cpuset.mems"] {
            // v1 wants these filled before a process may enter.
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

/// The directories of a cgroup that are there.
pub fn existing(name: &str) -> Vec<PathBuf> {
    let all = hierarchies()
        .into_iter()
        .map(|hierarchy| below(&hierarchy, name));
    all.filter(|path| path.exists()).collect()
}

/// Kills every process in the cgroup and removes it with all below it.
pub fn remove(name: &str) {
    if name.trim_matches('/').is_empty() {
        return;
    }
    if name.ends_with(".slice") {
        let slice = name.trim_matches('/');
        // A machine without systemd has no slice either.
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
    // It stays busy until the last process is reaped: the caller looks again.
    let _ = fs::remove_dir(dir);
}

fn below(hierarchy: &Path, name: &str) -> PathBuf {
    hierarchy.join(name.trim_start_matches('/'))
}
