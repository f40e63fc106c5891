//! Local persistent volumes: a directory or a disk of the node, bind-mounted for each pod. A disk is
//! mounted once for the node, at upstream's path, until its last pod is gone.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::process::Command;

use super::format::{self, DiskMount};
use super::progress::OwnershipProgress;
use super::{VolumeError, Warning, blocking, dir, fs_group, mount};
use crate::core::layout::{Layout, VolumeId};
use crate::core::mount_plan::LocalVolume;
use crate::core::mounts;
use crate::core::resize::{self, Expansion};
use crate::keyed_lock::KeyedMutex;
use crate::subprocess::SubprocessPool;

const NEW_MOUNTER: &str = "MountVolume.NewMounter initialization failed";
const MOUNT_DEVICE: &str = "MountVolume.MountDevice failed";
/// The deadline of a remount.
const DEADLINE: Duration = Duration::from_secs(30);

/// Mounts the volume for a pod, unless it is mounted already.
pub async fn set_up(
    layout: &Layout,
    id: &VolumeId,
    local: &LocalVolume,
    locks: &KeyedMutex,
    progress: &OwnershipProgress,
) -> Result<Option<Warning>, VolumeError> {
    let _lock = locks.lock(lock_key(id)).await;
    let path = PathBuf::from(&local.path);
    let is_disk = blocking(move || is_disk(&path)).await;
    let from = match is_disk.map_err(|error| error.in_step(NEW_MOUNTER))? {
        false => PathBuf::from(&local.path),
        true => {
            let at = layout.local_disk(&id.name);
            let mounted = mount_disk(local, &at).await;
            mounted.map_err(|error| error.in_step(MOUNT_DEVICE))?;
            at
        }
    };
    let at = layout.volume(id);
    let target = at.clone();
    let warning = match blocking(move || is_mount(&target)).await? {
        true => {
            // The process that mounted it may have ended before it set the options.
            set_options(local, &from, &at).await?;
            None
        }
        false => mount_for_pod(layout, id, local, &from, progress).await?,
    };
    if local.size.expansion == Expansion::Requested {
        let done = expand_disk(Path::new(&local.path), &at).await;
        done.map_err(|error| error.in_step(resize::MOUNT_STEP))?;
    }
    Ok(warning)
}

/// Resizes the file system of a disk to the size of the disk; nothing for a directory.
pub async fn expand(
    layout: &Layout,
    id: &VolumeId,
    local: &LocalVolume,
    locks: &KeyedMutex,
) -> Result<(), VolumeError> {
    let _lock = locks.lock(lock_key(id)).await;
    expand_disk(Path::new(&local.path), &layout.volume(id)).await
}

async fn expand_disk(path: &Path, at: &Path) -> Result<(), VolumeError> {
    let source = path.to_owned();
    if !blocking(move || is_disk(&source)).await? {
        return Ok(());
    }
    format::resize(path, at).await.map_err(VolumeError::Local)
}

async fn mount_for_pod(
    layout: &Layout,
    id: &VolumeId,
    local: &LocalVolume,
    from: &Path,
    progress: &OwnershipProgress,
) -> Result<Option<Warning>, VolumeError> {
    let at = layout.volume(id);
    let (layout, volume, spec) = (layout.clone(), id.clone(), local.clone());
    let (source, progress) = (from.to_owned(), progress.clone());
    // Before the mount, so that a mounted volume is complete.
    let warning =
        blocking(move || set_ownership(&layout, &volume, &spec, &source, &progress)).await?;
    let source = from.to_owned();
    let work = move || {
        fs::create_dir_all(&at).map_err(|source| VolumeError::MakeDir {
            path: at.clone(),
            source,
        })?;
        let bound = rustix::mount::mount_bind(&source, &at);
        bound.map_err(|errno| failed(&at, errno.into()))?;
        Ok(at)
    };
    let at = blocking(work).await?;
    if let Err(error) = set_options(local, from, &at).await {
        mount::unmount(&at)?;
        return Err(error);
    }
    Ok(warning)
}

/// Unmounts the volume for a pod, and a disk from the node when no other pod has it.
pub async fn tear_down(
    layout: &Layout,
    id: &VolumeId,
    locks: &KeyedMutex,
    subprocesses: &SubprocessPool,
) -> Result<(), VolumeError> {
    let _lock = locks.lock(lock_key(id)).await;
    super::tear_down::unmount_all(&layout.volume(id), subprocesses).await?;
    let disk = layout.local_disk(&id.name);
    let (at, pods) = (disk.clone(), layout.pods());
    let last = blocking(move || {
        let table = mount::table()?;
        let mut others = mounts::other_mounts(&table, &at).into_iter();
        Ok(at.exists() && !others.any(|mount| mount.mount_point.starts_with(&pods)))
    });
    if !last.await? {
        return Ok(());
    }
    super::tear_down::unmount_all(&disk, subprocesses).await?;
    blocking(move || match fs::remove_dir(&disk) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(VolumeError::Remove { path: disk, source })
        }
        _ => Ok(()),
    })
    .await
}

fn lock_key(id: &VolumeId) -> String {
    format!("local^{}", id.name)
}

fn failed(path: &Path, source: std::io::Error) -> VolumeError {
    VolumeError::Mount {
        kind: "a local volume",
        path: path.to_owned(),
        source,
    }
}

fn is_mount(path: &Path) -> Result<bool, VolumeError> {
    Ok(mount::table()?
        .iter()
        .any(|mount| mount.mount_point == path))
}

/// Whether the path is a disk, not a directory.
fn is_disk(path: &Path) -> Result<bool, VolumeError> {
    let invalid = |message: String| Err(VolumeError::Local(message));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(false),
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(true),
        Ok(_) => invalid("only directory and block device are supported".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => invalid(format!(
            "path {:?} does not exist",
            path.display().to_string()
        )),
        Err(source) => Err(VolumeError::Open {
            path: path.to_owned(),
            source,
        }),
    }
}

async fn mount_disk(local: &LocalVolume, at: &Path) -> Result<(), VolumeError> {
    let target = at.to_owned();
    let is_mounted = blocking(move || {
        fs::create_dir_all(&target).map_err(|source| VolumeError::MakeDir {
            path: target.clone(),
            source,
        })?;
        is_mount(&target)
    });
    if is_mounted.await? {
        return Ok(());
    }
    let mut options = local.mount_options.clone();
    if local.read_only {
        options.push("ro".to_owned());
    }
    options.sort_unstable();
    options.dedup();
    let disk = DiskMount {
        device: Path::new(&local.path),
        at,
        fs_type: &local.fs_type,
        options: &options,
    };
    format::mount(&disk).await.map_err(|error| {
        // Fails if the directory is in use; the next attempt uses it then.
        let _ = fs::remove_dir(at);
        let (path, kind) = (&local.path, &local.fs_type);
        let at = at.display();
        let cause = error.message;
        let message =
            format!("local: failed to mount device {path} at {at} (fstype: {kind}), error {cause}");
        match error.mismatch {
            true => VolumeError::FilesystemMismatch(message),
            false => VolumeError::Local(message),
        }
    })
}

/// Changes the ownership to the `fsGroup` of the first pod; warns where that of another pod differs.
fn set_ownership(
    layout: &Layout,
    id: &VolumeId,
    local: &LocalVolume,
    from: &Path,
    progress: &OwnershipProgress,
) -> Result<Option<Warning>, VolumeError> {
    let Some(gid) = local.gid else {
        return Ok(None);
    };
    let open = dir::open(from)?;
    let open_error = |source| VolumeError::Open {
        path: from.to_owned(),
        source,
    };
    let real = fs::canonicalize(from).map_err(open_error)?;
    let (table, pods) = (mount::table()?, layout.pods());
    let mut of_pods = mounts::other_mounts(&table, &real).into_iter();
    if !of_pods.any(|mount| mount.mount_point.starts_with(&pods)) {
        fs_group::set_ownership(&open, from, gid, local.on_root_mismatch, progress)?;
        return Ok(None);
    }
    let has = fs::metadata(from).map_err(open_error)?.gid();
    Ok((has != gid).then(|| Warning {
        reason: "AlreadyMountedVolume",
        message: format!(
            "The requested fsGroup is {gid}, but the volume {} has GID {has}. The volume may not be shareable.",
            id.name
        ),
    }))
}

/// Sets the options of the pod's mount, in addition to those of its source.
async fn set_options(local: &LocalVolume, from: &Path, at: &Path) -> Result<(), VolumeError> {
    if !local.read_only && local.mount_options.is_empty() {
        return Ok(());
    }
    let stat = statvfs(from).map_err(|errno| failed(from, errno.into()))?;
    let inherited = [
        (StatVfsMountFlags::RDONLY, "ro"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NOATIME, "noatime"),
        (StatVfsMountFlags::RELATIME, "relatime"),
        (StatVfsMountFlags::NODIRATIME, "nodiratime"),
    ];
    let inherited = inherited
        .iter()
        .filter(|(flag, _)| stat.f_flag.contains(*flag));
    let inherited = inherited.map(|(_, option)| *option);
    let own = local.mount_options.iter().map(String::as_str);
    let all = ["bind", "remount"].into_iter().chain(inherited).chain(own);
    let all = all.chain(local.read_only.then_some("ro"));
    let all = all.collect::<Vec<_>>().join(",");
    let mut command = Command::new("mount");
    command.args(["-o", &all]).arg(at).kill_on_drop(true);
    command.stdin(Stdio::null());
    let done = tokio::time::timeout(DEADLINE, command.output()).await;
    let done = done.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let done = done.map_err(|error| failed(at, error))?;
    if done.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(failed(at, std::io::Error::other(output)))
}
