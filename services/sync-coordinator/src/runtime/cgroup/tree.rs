//! Directories of cgroups: creation, lookup, killing of processes, removal.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) const MOUNT: &str = "/sys/fs/cgroup";
/// Controllers of v1 with limits that this service sets.
const CONTROLLERS_V1: &[&str] = &["cpu", "memory", "pids", "hugetlb"];
/// Controllers of v2 for pods, if the root has them.
const CONTROLLERS_V2: &[&str] = &["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// A cgroup directory that could not be created.
#[derive(Debug, thiserror::Error)]
#[error("creating cgroup {path}")]
pub(super) struct DirectoryError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Creates a cgroup and its parents.
pub(super) fn create(unified: bool, path: &str) -> Result<(), DirectoryError> {
    if !unified {
        for controller in CONTROLLERS_V1
            .iter()
            .map(|c| Path::new(MOUNT).join(c))
            .filter(|c| c.is_dir())
        {
            let dir = below(&controller, path);
            fs::create_dir_all(&dir).map_err(|source| DirectoryError { path: dir, source })?;
        }
        return Ok(());
    }
    create_unified(Path::new(MOUNT), path)
}

fn create_unified(mount: &Path, path: &str) -> Result<(), DirectoryError> {
    let mut dir = mount.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        // Children have only the controllers enabled here.
        enable_controllers(&dir);
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(DirectoryError { path: dir, source });
            }
            _ => {}
        }
    }
    enable_controllers(&dir);
    Ok(())
}

/// Enables the controllers for children, where they are not yet: the kernel locks all cgroups for each write.
/// One that the root lacks stays disabled.
fn enable_controllers(dir: &Path) {
    let list = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let (available, enabled) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    let has = |list: &str, name: &str| list.split_whitespace().any(|other| other == name);
    let missing = CONTROLLERS_V2
        .iter()
        .filter(|name| has(&available, name) && !has(&enabled, name));
    let missing: Vec<_> = missing.map(|name| format!("+{name}")).collect();
    let write = |names: &str| fs::write(dir.join("cgroup.subtree_control"), names);
    if !missing.is_empty() && write(&missing.join(" ")).is_err() {
        // All or none of a line are enabled.
        for name in &missing {
            let _ = write(name);
        }
    }
}

/// Whether a cgroup exists.
pub(super) fn exists(unified: bool, path: &str) -> bool {
    let hierarchy = if unified { "" } else { "memory" };
    below(&Path::new(MOUNT).join(hierarchy), path).is_dir()
}

/// The directory of a cgroup below the mount of a hierarchy.
pub(super) fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// The directories of a cgroup: in v1 the runtime creates it in every hierarchy.
pub(super) fn dirs(unified: bool, path: &str) -> Vec<PathBuf> {
    if unified {
        return vec![below(Path::new(MOUNT), path)];
    }
    let hierarchies = fs::read_dir(MOUNT).into_iter().flatten().flatten();
    // Some hierarchies have a second name, a symlink.
    let own = hierarchies.filter(|h| h.file_type().is_ok_and(|t| t.is_dir()));
    own.map(|h| below(&h.path(), path))
        .filter(|dir| dir.is_dir())
        .collect()
}

/// Removes a cgroup and its children; true if it is gone. Most have no children: the runtime removes those
/// of containers.
pub(super) fn remove_tree(dir: &Path) -> bool {
    if remove(dir) {
        return true;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    remove(dir)
}

/// Removes a cgroup without children; true if it is gone.
fn remove(dir: &Path) -> bool {
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Kills every process in a cgroup and its children.
pub(super) fn kill_all(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            kill_all(&entry.path());
        }
    }
    let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    for pid in pids
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories in place of cgroups.
    fn with_controllers(dir: &Path, available: &str, enabled: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("cgroup.controllers"), available).unwrap();
        fs::write(dir.join("cgroup.subtree_control"), enabled).unwrap();
    }

    fn enabled(dir: &Path) -> String {
        fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap()
    }

    #[test]
    fn only_missing_controllers_are_enabled() {
        let mount = tempfile::tempdir().unwrap();
        let (mount, pods) = (mount.path(), mount.path().join("kubepods"));
        with_controllers(mount, "cpu memory io pids\n", "pids memory cpu\n");
        with_controllers(&pods, "cpu memory pids\n", "cpu\n");
        create_unified(mount, "/kubepods/pod1").unwrap();
        assert!(pods.join("pod1").is_dir());
        // What is not written stays as it was, with the end of its line.
        assert_eq!(enabled(mount), "pids memory cpu\n");
        assert_eq!(enabled(&pods), "+memory +pids");
    }

    #[test]
    fn missing_parents_are_created() {
        let mount = tempfile::tempdir().unwrap();
        with_controllers(mount.path(), "memory\n", "");
        create_unified(mount.path(), "/kubepods/burstable/pod1").unwrap();
        assert!(mount.path().join("kubepods/burstable/pod1").is_dir());
        assert_eq!(enabled(mount.path()), "+memory");
        fs::write(mount.path().join("file"), "").unwrap();
        let refused = create_unified(mount.path(), "/file/pod1").unwrap_err();
        assert_eq!(refused.path, mount.path().join("file/pod1"));
    }
}
