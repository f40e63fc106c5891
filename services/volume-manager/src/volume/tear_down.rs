//! Tears volumes down, and in the end the pod's directory. Mounts are unmounted first, those that can
//! hang in a child process; then content that belongs to the pod is deleted. Of other volumes only
//! empty directories are removed.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::subprocess::{SubprocessError, SubprocessTask, TaskProgress};
use polylet_machine::mountinfo::Mount;
use polylet_walk::Budget;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Deserialize, Serialize};

use super::delete;
use super::{VolumeError, blocking, dir, mount};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts;
use crate::subprocess::Subprocesses;

/// The deadline of an unmount.
const DEADLINE: Duration = Duration::from_secs(30);
/// The deadline of one that can be forced, as upstream.
const DEADLINE_BEFORE_FORCE: Duration = Duration::from_secs(60);

/// Unmounts file systems, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub struct UnmountTask {
    mount_points: Vec<PathBuf>,
    /// Give up requests that the server has not answered.
    force: bool,
    deadline: Duration,
}

impl SubprocessTask for UnmountTask {
    const NAME: &'static str = "unmount";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        let last = self.mount_points.last();
        let last = last.map(|path| path.display().to_string());
        // Forcing frees an attempt that hangs: it does not wait for it.
        format!("{} {}", self.force, last.unwrap_or_default())
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn run(self, progress: &mut TaskProgress<()>) -> Self::Output {
        let flags = match self.force {
            true => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE,
            false => UnmountFlags::NOFOLLOW,
        };
        for path in &self.mount_points {
            match rustix::mount::unmount(path, flags) {
                // Not a mount point any more.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => progress.report(|| ()),
                Err(errno) => return Err(format!("unmounting {}: {errno}", path.display())),
            }
        }
        Ok(())
    }
}

/// Unmounts everything at and below a directory of a pod.
pub async fn unmount_all(
    path: &Path,
    pod_uid: &str,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let table = mount::table()?;
    let mounted = mounts::below(&table, path);
    let mount_points: Vec<_> = mounted.iter().map(|m| m.mount_point.clone()).collect();
    if mounted
        .iter()
        .all(|mount| mounts::unmounts_at_once(&table, mount))
    {
        let work = move || mount_points.iter().try_for_each(|at| mount::unmount(at));
        return blocking(work).await;
    }
    let can_be_forced = mounted.iter().any(|mount| mounts::is_remote(mount));
    let task = UnmountTask {
        mount_points,
        force: false,
        deadline: match can_be_forced {
            true => DEADLINE_BEFORE_FORCE,
            false => DEADLINE,
        },
    };
    let done = match subprocesses.call(pod_uid, &task).await {
        Err(SubprocessError::Deadline(_) | SubprocessError::StillRunning) if can_be_forced => {
            force(task, &mounted, pod_uid, subprocesses).await
        }
        done => done,
    };
    done?.map_err(VolumeError::Task)
}

/// As upstream where the server does not answer.
async fn force(
    task: UnmountTask,
    mounted: &[&Mount],
    pod_uid: &str,
    subprocesses: &Subprocesses,
) -> Result<Result<(), String>, SubprocessError> {
    let remote = mounted.iter().filter(|mount| mounts::is_remote(mount));
    for mount in remote {
        tracing::warn!(
            path = %mount.mount_point.display(),
            pod_uid,
            "file system does not answer; forcing its unmount"
        );
    }
    let task = UnmountTask {
        force: true,
        deadline: DEADLINE,
        ..task
    };
    subprocesses.call(pod_uid, &task).await
}

/// Removes an unmounted volume and its marker.
pub fn remove_volume(
    layout: &Layout,
    id: &VolumeId,
    budget: &mut Budget,
) -> Result<(), VolumeError> {
    let path = layout.volume(id);
    let Some(pod) = open_if_exists(&layout.pod(&id.uid))? else {
        return Ok(());
    };
    remove_sub_paths(&pod, &layout.sub_paths(&id.uid, &id.name), budget)?;
    let within = Path::new("volumes").join(&id.plugin);
    let failed = |source| VolumeError::Remove {
        path: path.clone(),
        source,
    };
    let name = CString::new(id.name.as_str()).map_err(|error| failed(error.into()))?;
    if let Some(parent) = open_below_if_exists(&pod, &within).map_err(failed)? {
        if layout::is_owned(&id.plugin) {
            delete::tree(&parent, &name, budget).map_err(|error| error.at(&path))?;
        } else {
            delete::empty_dir(&parent, &name).map_err(failed)?;
        }
        // The last volume removes the plugin's directory, too.
        let plugin = CString::new(id.plugin.as_str()).map_err(|error| failed(error.into()))?;
        if let Some(volumes) = open_below_if_exists(&pod, Path::new("volumes")).map_err(failed)? {
            let _ = delete::empty_dir(&volumes, &plugin);
        }
    }
    let marker = layout::marker(id);
    let (Some(markers), Some(name)) = (marker.parent(), marker.file_name()) else {
        return Ok(());
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|error| failed(error.into()))?;
    match open_below_if_exists(&pod, markers).map_err(failed)? {
        Some(markers) => {
            let deleted = delete::tree(&markers, &name, budget);
            deleted.map_err(|error| error.at(&path))
        }
        None => Ok(()),
    }
}

/// Removes the bind mounts' directories of subPaths. A mount that is left is not entered.
fn remove_sub_paths(pod: &OwnedFd, path: &Path, budget: &mut Budget) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Remove {
        path: path.to_owned(),
        source,
    };
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = CString::new(name).map_err(|error| failed(error.into()))?;
    let all = Path::new(layout::SUB_PATHS);
    let Some(parent) = open_below_if_exists(pod, all).map_err(failed)? else {
        return Ok(());
    };
    delete::tree(&parent, &name, budget).map_err(|error| error.at(path))?;
    // The last volume removes the directory, too.
    let all = CString::new(layout::SUB_PATHS).map_err(|error| failed(error.into()))?;
    let _ = delete::empty_dir(pod, &all);
    Ok(())
}

/// Removes the directory of a pod without volumes.
pub fn remove_pod_dir(layout: &Layout, uid: &str, budget: &mut Budget) -> Result<(), VolumeError> {
    let path = layout.pod(uid);
    let failed = |source| VolumeError::Remove {
        path: path.clone(),
        source,
    };
    let Some(pod) = open_if_exists(&path)? else {
        return Ok(());
    };
    // An unknown volume is removed only if it is empty.
    if let Some(volumes) = open_below_if_exists(&pod, Path::new("volumes")).map_err(failed)? {
        for entry in dir::names(&volumes).map_err(|errno| failed(errno.into()))? {
            let (plugin, _) = entry.map_err(|errno| failed(errno.into()))?;
            delete::empty_dir(&volumes, &plugin).map_err(|source| VolumeError::Remove {
                path: path.join("volumes").join(plugin.to_string_lossy().as_ref()),
                source,
            })?;
        }
    }
    let pods = dir::open(&layout.pods())?;
    let name = CString::new(uid).map_err(|error| failed(error.into()))?;
    delete::tree(&pods, &name, budget).map_err(|error| error.at(&path))
}

fn open_if_exists(path: &Path) -> Result<Option<OwnedFd>, VolumeError> {
    match dir::open(path) {
        Ok(dir) => Ok(Some(dir)),
        Err(VolumeError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn open_below_if_exists(parent: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    match dir::open_below(parent, path) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
