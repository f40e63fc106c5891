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
    let failed = |path: &Path, source| DirectoryError {
        path: path.to_owned(),
        source,
    };
    if !unified {
        for controller in CONTROLLERS_V1
            .iter()
            .map(|c| Path::new(MOUNT).join(c))
            .filter(|c| c.is_dir())
        {
            let dir = below(&controller, path);
            fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
        }
        return Ok(());
    }
    let mut dir = PathBuf::from(MOUNT);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        // Children have only the controllers enabled here.
        enable_controllers(&dir);
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(&dir, error));
            }
            _ => {}
        }
    }
    enable_controllers(&dir);
    Ok(())
}

/// Enables the controllers for children; one that the root lacks stays disabled.
fn enable_controllers(dir: &Path) {
    for controller in CONTROLLERS_V2 {
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
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
