//! Takes volumes away, and in the end the pod's directory. Mounts are undone first, those that can
//! hang in a child; then what is ours is removed; what is not ours is only ever an empty directory.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use polylet_kit::CancellationToken;
use rustix::io::Errno;

use super::remove::{self, Budget};
use super::{VolumeError, dir, mount};
use crate::core::layout::{self, Layout, VolumeId};
use crate::core::mounts;
use crate::job::{Job, Jobs};

/// Undoes all mounts at and below a directory.
pub async fn unmount_all(path: &Path, jobs: &Jobs) -> Result<(), VolumeError> {
    let table = mount::table()?;
    for found in mounts::below(&table, path) {
        if found.is_local() {
            mount::unmount(&found.at)?;
        } else {
            let at = found.at.clone();
            let job = Job::Unmount { at };
            jobs.run(&job, &CancellationToken::new()).await?;
        }
    }
    Ok(())
}

/// Removes what is left of an unmounted volume, and its marker.
pub fn remove_volume(layout: &Layout, id: &VolumeId, budget: &Budget) -> Result<(), VolumeError> {
    let path = layout.volume(id);
    let Some(pod) = open_if_there(&layout.pod(&id.uid))? else {
        return Ok(());
    };
    remove_sub_paths(&pod, &layout.sub_paths(&id.uid, &id.name), budget)?;
    let within = Path::new("volumes").join(&id.plugin);
    let failed = |source| VolumeError::Remove {
        path: path.clone(),
        source,
    };
    let name = CString::new(id.name.as_str()).map_err(|error| failed(error.into()))?;
    if let Some(parent) = open_below_if_there(&pod, &within).map_err(failed)? {
        if layout::is_ours(&id.plugin) {
            remove::tree(&parent, &name, budget).map_err(failed)?;
        } else {
            remove::empty(&parent, &name).map_err(failed)?;
        }
        // The last one takes the plugin's directory along.
        let plugin = CString::new(id.plugin.as_str()).map_err(|error| failed(error.into()))?;
        if let Some(volumes) = open_below_if_there(&pod, Path::new("volumes")).map_err(failed)? {
            let _ = remove::empty(&volumes, &plugin);
        }
    }
    let marker = layout::marker(id);
    let (Some(markers), Some(name)) = (marker.parent(), marker.file_name()) else {
        return Ok(());
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|error| failed(error.into()))?;
    match open_below_if_there(&pod, markers).map_err(failed)? {
        Some(markers) => remove::tree(&markers, &name, budget).map_err(failed),
        None => Ok(()),
    }
}

/// Removes the places where parts of a volume were bound. A mount that is left is never entered.
fn remove_sub_paths(pod: &OwnedFd, path: &Path, budget: &Budget) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Remove {
        path: path.to_owned(),
        source,
    };
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = CString::new(name).map_err(|error| failed(error.into()))?;
    let all = Path::new(layout::SUB_PATHS);
    let Some(parent) = open_below_if_there(pod, all).map_err(failed)? else {
        return Ok(());
    };
    remove::tree(&parent, &name, budget).map_err(failed)?;
    // The last volume takes the directory along.
    let all = CString::new(layout::SUB_PATHS).map_err(|error| failed(error.into()))?;
    let _ = remove::empty(pod, &all);
    Ok(())
}

/// Removes the directory of a pod without volumes.
pub fn remove_pod(layout: &Layout, uid: &str, budget: &Budget) -> Result<(), VolumeError> {
    let path = layout.pod(uid);
    let failed = |source| VolumeError::Remove {
        path: path.clone(),
        source,
    };
    let Some(pod) = open_if_there(&path)? else {
        return Ok(());
    };
    // A volume that nobody knows of is never removed with what it holds.
    if let Some(volumes) = open_below_if_there(&pod, Path::new("volumes")).map_err(failed)? {
        for (plugin, _) in dir::names(&volumes).map_err(|errno| failed(errno.into()))? {
            remove::empty(&volumes, &plugin).map_err(|source| VolumeError::Remove {
                path: path.join("volumes").join(plugin.to_string_lossy().as_ref()),
                source,
            })?;
        }
    }
    let pods = dir::open(&layout.pods())?;
    let name = CString::new(uid).map_err(|error| failed(error.into()))?;
    remove::tree(&pods, &name, budget).map_err(failed)
}

fn open_if_there(path: &Path) -> Result<Option<OwnedFd>, VolumeError> {
    match dir::open(path) {
        Ok(dir) => Ok(Some(dir)),
        Err(VolumeError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn open_below_if_there(parent: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    match dir::open_below(parent, path) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
