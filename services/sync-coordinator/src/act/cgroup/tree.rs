//! Cgroups as directories: made, found, emptied, removed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) const MOUNT: &str = "/sys/fs/cgroup";
/// Where version 1 holds what we write.
const CONTROLLERS_V1: &[&str] = &["cpu", "memory", "pids", "hugetlb"];
/// What a pod's cgroup needs in version 2, where the root has it.
const CONTROLLERS_V2: &[&str] = &["cpu", "cpuset", "memory", "hugetlb", "pids"];

/// A cgroup that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cgroup {place}")]
pub(super) struct DirectoryError {
    place: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Makes a cgroup with those above it.
pub(super) fn make(unified: bool, path: &str) -> Result<(), DirectoryError> {
    let failed = |place: &Path, source| DirectoryError {
        place: place.to_owned(),
        source,
    };
    if !unified {
        for controller in CONTROLLERS_V1
            .iter()
            .map(|c| Path::new(MOUNT).join(c))
            .filter(|c| c.is_dir())
        {
            let place = below(&controller, path);
            fs::create_dir_all(&place).map_err(|error| failed(&place, error))?;
        }
        return Ok(());
    }
    let mut place = PathBuf::from(MOUNT);
    for part in path.split('/').filter(|part| !part.is_empty()) {
        // What is below gets its controllers from here; one that the root lacks is done without.
        hand_down(&place);
        place.push(part);
        match fs::create_dir(&place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(&place, error));
            }
            _ => {}
        }
    }
    hand_down(&place);
    Ok(())
}

fn hand_down(place: &Path) {
    for controller in CONTROLLERS_V2 {
        let _ = fs::write(
            place.join("cgroup.subtree_control"),
            format!("+{controller}"),
        );
    }
}

/// Whether a cgroup is there.
pub(super) fn exists(unified: bool, path: &str) -> bool {
    let hierarchy = if unified { "" } else { "memory" };
    below(&Path::new(MOUNT).join(hierarchy), path).is_dir()
}

pub(super) fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// Where a cgroup may be: in version 1 the runtime makes it in every hierarchy.
pub(super) fn places(unified: bool, path: &str) -> Vec<PathBuf> {
    if unified {
        return vec![below(Path::new(MOUNT), path)];
    }
    let hierarchies = fs::read_dir(MOUNT).into_iter().flatten().flatten();
    // Some hierarchies have a second name, which is a link.
    let own = hierarchies.filter(|h| h.file_type().is_ok_and(|t| t.is_dir()));
    own.map(|h| below(&h.path(), path))
        .filter(|place| place.is_dir())
        .collect()
}

/// Removes a cgroup with those below it; true when it is gone.
pub(super) fn remove_tree(place: &Path) -> bool {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match fs::remove_dir(place) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Ends every process in a cgroup and below.
pub(super) fn kill_all(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            kill_all(&entry.path());
        }
    }
    let pids = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
    for pid in pids
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
