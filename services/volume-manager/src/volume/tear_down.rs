//! Tears volumes down, and in the end the pod's directory. Mounts are unmounted first, those that can
//! hang in a child process; then content that belongs to the pod is deleted. Of other volumes only
//! empty directories are removed.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use polylet_kit::CancellationToken;
use rustix::io::Errno;

use super::delete::{self, DeleteLimit};
use super::{VolumeError, dir, mount};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts;
use crate::subprocess::{HelperTask, SubprocessPool};

/// Unmounts everything at and below a directory.
pub async fn unmount_all(path: &Path, subprocesses: &SubprocessPool) -> Result<(), VolumeError> {
    let table = mount::table()?;
    for mounted in mounts::below(&table, path) {
        if mounts::is_local(mounted) {
            mount::unmount(&mounted.mount_point)?;
        } else {
            let path = mounted.mount_point.clone();
            let task = HelperTask::Unmount { path };
            subprocesses.run(&task, &CancellationToken::new()).await?;
        }
    }
    Ok(())
}

/// Removes an unmounted volume and its marker.
pub fn remove_volume(
    layout: &Layout,
    id: &VolumeId,
    limit: &DeleteLimit,
) -> Result<(), VolumeError> {
    let path = layout.volume(id);
    let Some(pod) = open_if_exists(&layout.pod(&id.uid))? else {
        return Ok(());
    };
    remove_sub_paths(&pod, &layout.sub_paths(&id.uid, &id.name), limit)?;
    let within = Path::new("volumes").join(&id.plugin);
    let failed = |source| VolumeError::Remove {
        path: path.clone(),
        source,
    };
    let name = CString::new(id.name.as_str()).map_err(|error| failed(error.into()))?;
    if let Some(parent) = open_below_if_exists(&pod, &within).map_err(failed)? {
        if layout::is_owned(&id.plugin) {
            delete::tree(&parent, &name, limit).map_err(failed)?;
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
        Some(markers) => delete::tree(&markers, &name, limit).map_err(failed),
        None => Ok(()),
    }
}

/// Removes the bind mounts' directories of subPaths. A mount that is left is not entered.
fn remove_sub_paths(pod: &OwnedFd, path: &Path, limit: &DeleteLimit) -> Result<(), VolumeError> {
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
    delete::tree(&parent, &name, limit).map_err(failed)?;
    // The last volume removes the directory, too.
    let all = CString::new(layout::SUB_PATHS).map_err(|error| failed(error.into()))?;
    let _ = delete::empty_dir(pod, &all);
    Ok(())
}

/// Removes the directory of a pod without volumes.
pub fn remove_pod_dir(layout: &Layout, uid: &str, limit: &DeleteLimit) -> Result<(), VolumeError> {
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
        for (plugin, _) in dir::names(&volumes).map_err(|errno| failed(errno.into()))? {
            delete::empty_dir(&volumes, &plugin).map_err(|source| VolumeError::Remove {
                path: path.join("volumes").join(plugin.to_string_lossy().as_ref()),
                source,
            })?;
        }
    }
    let pods = dir::open(&layout.pods())?;
    let name = CString::new(uid).map_err(|error| failed(error.into()))?;
    delete::tree(&pods, &name, limit).map_err(failed)
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
