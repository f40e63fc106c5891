//! Maps a block device to a pod as upstream does: a bind mount that stays valid when the device name
//! is reused, a loop device that keeps the device open, and a symbolic link for the containers.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{VolumeError, blocking, mount};
use crate::core::layout::{Layout, VolumeId};

/// Upstream's name of the step that maps a device.
pub const MAP_STEP: &str = "MapVolume.MapBlockVolume failed";
/// The deadline of `losetup`.
const DEADLINE: Duration = Duration::from_secs(30);

/// Creates the pod's link to the device: first, and removed last, so that a restarted process finds
/// the device.
pub async fn link(layout: &Layout, id: &VolumeId, device: &Path) -> Result<(), VolumeError> {
    let (link, to) = (layout.volume(id), device.to_owned());
    blocking(move || make_link(&to, &link)).await
}

/// Binds the device for the pod and keeps it open, unless that is done already.
pub async fn map(layout: &Layout, id: &VolumeId, device: &Path) -> Result<(), VolumeError> {
    let bound = layout.device(id);
    let (at, from) = (bound.clone(), device.to_owned());
    blocking(move || bind(&from, &at)).await?;
    if loop_devices(&bound).is_empty() {
        losetup(&["-f".as_ref(), bound.as_os_str()], &bound).await?;
    }
    Ok(())
}

/// Undoes [`map`]; the link stays.
pub async fn unmap(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    let bound = layout.device(id);
    for device in loop_devices(&bound) {
        losetup(&["-d".as_ref(), device.as_os_str()], &bound).await?;
    }
    blocking(move || {
        mount::unmount(&bound)?;
        ignore_missing(&bound, fs::remove_file(&bound))
    })
    .await
}

/// Removes the pod's link.
pub async fn unlink(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    let link = layout.volume(id);
    blocking(move || ignore_missing(&link, fs::remove_file(&link))).await
}

/// Maps a device of the node to a pod.
pub async fn map_local(layout: &Layout, id: &VolumeId, device: &str) -> Result<(), VolumeError> {
    let device = PathBuf::from(device);
    let done = async {
        if !is_device(&device) {
            let message = format!("{} is not a block device", device.display());
            return Err(VolumeError::NotABlockDevice(message));
        }
        link(layout, id, &device).await?;
        map(layout, id, &device).await
    };
    done.await.map_err(|error| error.in_step(MAP_STEP))
}

/// Unmaps a device of the node from a pod.
pub async fn unmap_local(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    unmap(layout, id).await?;
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

/// Whether a path is, or links to, a block device.
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
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
        fs::create_dir_all(parent).map_err(failed)?;
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

async fn losetup(arguments: &[&std::ffi::OsStr], path: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::LoopDevice {
        path: path.to_owned(),
        source,
    };
    let mut command = Command::new("losetup");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = ran
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let output_text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(std::io::Error::other(output_text)))
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
