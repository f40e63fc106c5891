//! A block device, handed to a pod in upstream's way: a bind of it that stays when its own name is
//! given to another, a loop device that keeps it open, and the link that containers are given.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{VolumeError, blocking, mount};
use crate::core::layout::{Layout, VolumeId};

/// What people are told of a device that cannot be handed to a pod.
pub const MAP: &str = "MapVolume.MapBlockVolume failed";
/// How long the kernel may take to make a loop device, or to take one away.
const DEADLINE: Duration = Duration::from_secs(30);

/// Makes the pod's link to where the device will be: it comes first and goes last, so that whoever
/// finds it knows of the device.
pub async fn link(layout: &Layout, id: &VolumeId, device: &Path) -> Result<(), VolumeError> {
    let (link, to) = (layout.volume(id), device.to_owned());
    blocking(move || make_link(&to, &link)).await
}

/// Hands the device to the pod, as far as it has not been.
pub async fn map(layout: &Layout, id: &VolumeId, device: &Path) -> Result<(), VolumeError> {
    let bound = layout.device(id);
    let (at, from) = (bound.clone(), device.to_owned());
    blocking(move || bind(&from, &at)).await?;
    if loops(&bound).is_empty() {
        losetup(&["-f".as_ref(), bound.as_os_str()], &bound).await?;
    }
    Ok(())
}

/// Takes it away from the pod; its link stays.
pub async fn unmap(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    let bound = layout.device(id);
    for device in loops(&bound) {
        losetup(&["-d".as_ref(), device.as_os_str()], &bound).await?;
    }
    blocking(move || {
        mount::unmount(&bound)?;
        gone(&bound, fs::remove_file(&bound))
    })
    .await
}

/// Takes the pod's link away: nothing is left to be undone.
pub async fn unlink(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    let link = layout.volume(id);
    blocking(move || gone(&link, fs::remove_file(&link))).await
}

/// Hands a device of the node to a pod.
pub async fn map_local(layout: &Layout, id: &VolumeId, device: &str) -> Result<(), VolumeError> {
    let device = PathBuf::from(device);
    let done = async {
        if !is_device(&device) {
            let why = format!("{} is not a block device", device.display());
            return Err(VolumeError::NoDevice(why));
        }
        link(layout, id, &device).await?;
        map(layout, id, &device).await
    };
    done.await.map_err(|error| error.during(MAP))
}

/// Takes a device of the node away from a pod, and what is left of it with the last.
pub async fn unmap_local(layout: &Layout, id: &VolumeId) -> Result<(), VolumeError> {
    unmap(layout, id).await?;
    let bound = layout.device(id);
    blocking(move || {
        // Other pods' are still there.
        if let Some(all) = bound.parent() {
            let _ = fs::remove_dir(all);
        }
        Ok(())
    })
    .await?;
    unlink(layout, id).await
}

/// Whether a path leads to a block device.
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|is| is.file_type().is_block_device())
}

fn bind(device: &Path, at: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Write {
        path: at.to_owned(),
        source,
    };
    if mount::table()?.iter().any(|mount| mount.at == at) {
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
    if fs::read_link(link).is_ok_and(|leads| leads == device) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    gone(link, fs::remove_file(link))?;
    symlink(device, link).map_err(failed)
}

/// The loop devices over a file.
fn loops(over: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = |name: &Path| {
        let backing = name.join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|text| Path::new(text.trim_end_matches('\n')) == over)
    };
    let found = devices.filter(|device| over(&device.path()));
    found
        .map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

async fn losetup(arguments: &[&std::ffi::OsStr], path: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Loop {
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
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(std::io::Error::other(said)))
}

fn gone(path: &Path, done: std::io::Result<()>) -> Result<(), VolumeError> {
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(VolumeError::Remove {
            path: path.to_owned(),
            source: error,
        }),
        _ => Ok(()),
    }
}
