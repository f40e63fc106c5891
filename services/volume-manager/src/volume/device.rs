//! Maps a block device to a pod as upstream does: a bind mount that stays valid when the device name
//! is reused, a loop device that keeps the device open, and a symbolic link for the containers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polylet_kit::report;
use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use serde::{Deserialize, Serialize};

use super::host_path::{self, PathType};
use super::{VolumeError, blocking, dir, mount, program};
use crate::core::layout::{Layout, VolumeId};
use crate::subprocess::Subprocesses;

/// Upstream's name of the step that maps a device.
pub const MAP_STEP: &str = "MapVolume.MapBlockVolume failed";

/// Binds a device for a pod and keeps it open.
#[derive(Debug, Serialize, Deserialize)]
pub struct MapDeviceTask {
    device: PathBuf,
    at: PathBuf,
}

/// Undoes [`MapDeviceTask`].
#[derive(Debug, Serialize, Deserialize)]
pub struct UnmapDeviceTask {
    at: PathBuf,
}

impl SubprocessTask for MapDeviceTask {
    const NAME: &'static str = "map-device";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.at.display().to_string()
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        bind(&self.device, &self.at).map_err(|error| report(&error))?;
        if loop_devices(&self.at).is_empty() {
            losetup(&["-f".as_ref(), self.at.as_os_str()], &self.at)?;
        }
        Ok(())
    }
}

impl SubprocessTask for UnmapDeviceTask {
    const NAME: &'static str = "unmap-device";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.at.display().to_string()
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        for device in loop_devices(&self.at) {
            losetup(&["-d".as_ref(), device.as_os_str()], &self.at)?;
        }
        let unmounted = mount::unmount(&self.at)
            .and_then(|()| ignore_missing(&self.at, fs::remove_file(&self.at)));
        unmounted.map_err(|error| report(&error))
    }
}

/// Creates the pod's link to the device: first, and removed last, so that a restarted process finds
/// the device.
pub async fn link(layout: &Layout, id: &VolumeId, device: &Path) -> Result<(), VolumeError> {
    let (link, to) = (layout.volume(id), device.to_owned());
    blocking(move || make_link(&to, &link)).await
}

/// Binds the device for the pod and keeps it open, unless that is done already.
pub async fn map(
    layout: &Layout,
    id: &VolumeId,
    device: &Path,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let task = MapDeviceTask {
        device: device.to_owned(),
        at: layout.device(id),
    };
    let done = subprocesses.call(&id.uid, &task).await?;
    done.map_err(VolumeError::Task)
}

/// Undoes [`map`]; the link stays.
pub async fn unmap(
    layout: &Layout,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let at = layout.device(id);
    let done = subprocesses.call(&id.uid, &UnmapDeviceTask { at }).await?;
    done.map_err(VolumeError::Task)
}

/// Removes the pod's link.
pub async fn unlink(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    let link = layout.volume(id);
    blocking(move || ignore_missing(&link, fs::remove_file(&link))).await
}

/// Maps a device of the node to a pod.
pub async fn map_local(
    layout: &Layout,
    id: &VolumeId,
    device: &str,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let device = PathBuf::from(device);
    let done = async {
        let found = host_path::type_for_pod(&device, &id.uid, subprocesses).await?;
        if found != PathType::BlockDevice {
            let message = format!("{} is not a block device", device.display());
            return Err(VolumeError::NotABlockDevice(message));
        }
        link(layout, id, &device).await?;
        map(layout, id, &device, subprocesses).await
    };
    done.await.map_err(|error| error.in_step(MAP_STEP))
}

/// Unmaps a device of the node from a pod.
pub async fn unmap_local(
    layout: &Layout,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    unmap(layout, id, subprocesses).await?;
    let bound = layout.device(id);
    blocking(move || {
        // Fails while other pods have the device.
        if let Some(dir) = bound.parent() {
            let _ = fs::remove_dir(dir);
        }
        Ok(())
    })
    .await?;
    unlink(layout, id).await
}

fn bind(device: &Path, at: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Write {
        path: at.to_owned(),
        source,
    };
    if mount::table()?.iter().any(|mount| mount.mount_point == at) {
        return Ok(());
    }
    if let Some(parent) = at.parent() {
        dir::create_all(parent, 0o755).map_err(failed)?;
    }
    fs::File::create(at).map_err(failed)?;
    rustix::mount::mount_bind(device, at).map_err(|errno| VolumeError::Mount {
        kind: "a block device",
        path: at.to_owned(),
        source: errno.into(),
    })
}

fn make_link(device: &Path, link: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Write {
        path: link.to_owned(),
        source,
    };
    if fs::read_link(link).is_ok_and(|target| target == device) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    ignore_missing(link, fs::remove_file(link))?;
    symlink(device, link).map_err(failed)
}

/// The loop devices with this backing file.
fn loop_devices(backing: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let has_backing = |name: &Path| {
        let text = fs::read_to_string(name.join("loop/backing_file"));
        text.is_ok_and(|text| Path::new(text.trim_end_matches('\n')) == backing)
    };
    let backed = devices.filter(|device| has_backing(&device.path()));
    backed
        .map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

fn losetup(arguments: &[&OsStr], path: &Path) -> Result<(), String> {
    let failed = |error: &str| format!("a loop device over {}: {error}", path.display());
    let mut command = Command::new("losetup");
    command.args(arguments).stdin(Stdio::null());
    let done = program::run(command).map_err(|error| failed(&error))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim()))
}

fn ignore_missing(path: &Path, removed: std::io::Result<()>) -> Result<(), VolumeError> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumeError::Remove {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}
