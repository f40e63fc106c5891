//! Maps a block device to a pod as upstream does: a bind mount that stays valid when the device name
//! is reused, a loop device that keeps the device open, and a symbolic link for the containers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
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
        rebind(&self.device, &self.at)?;
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
        unbind(&self.at)
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

/// Binds the device, also where another one is bound, which the driver has published before.
fn rebind(device: &Path, at: &Path) -> Result<(), String> {
    if is_bound(device, at).map_err(|error| report(&error))? {
        return Ok(());
    }
    unbind(at)?;
    bind(device, at).map_err(|error| report(&error))
}

/// Whether this device, and no other, is bound for the pod.
fn is_bound(device: &Path, at: &Path) -> Result<bool, VolumeError> {
    if mount::table()?.iter().all(|mount| mount.mount_point != at) {
        return Ok(false);
    }
    let metadata = |path: &Path| {
        fs::metadata(path).map_err(|source| VolumeError::Open {
            path: path.to_owned(),
            source,
        })
    };
    let (device, bound) = (metadata(device)?, metadata(at)?);
    let is_device = |of: &fs::Metadata| of.file_type().is_block_device();
    // A driver may make another node of the same device each time that it publishes it.
    Ok(match is_device(&device) && is_device(&bound) {
        true => device.rdev() == bound.rdev(),
        false => (device.dev(), device.ino()) == (bound.dev(), bound.ino()),
    })
}

/// Closes what keeps the device open, and removes its bind mount.
fn unbind(at: &Path) -> Result<(), String> {
    for device in loop_devices(at) {
        losetup(&["-d".as_ref(), device.as_os_str()], at)?;
    }
    let unmounted = mount::unmount(at).and_then(|()| ignore_missing(at, fs::remove_file(at)));
    unmounted.map_err(|error| report(&error))
}

fn bind(device: &Path, at: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Write {
        path: at.to_owned(),
        source,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, in place of devices.
    #[test]
    fn another_device_at_the_path_is_replaced() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(temp.path()).unwrap();
        let at = dir.join("dev/u1");
        let device = |name: &str| {
            let path = dir.join(name);
            fs::write(&path, name).unwrap();
            path
        };
        let (first, second) = (device("first"), device("second"));
        for (device, content) in [(&first, "first"), (&first, "first"), (&second, "second")] {
            rebind(device, &at).unwrap();
            assert_eq!(fs::read_to_string(&at).unwrap(), content);
            let table = mount::table().unwrap();
            assert_eq!(table.iter().filter(|m| m.mount_point == at).count(), 1);
        }
        unbind(&at).unwrap();
        assert!(!at.exists());
    }
}
