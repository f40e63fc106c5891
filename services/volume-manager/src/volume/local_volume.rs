//! A directory of the node, or a disk of its own, mounted where a pod's volumes are. A disk is
//! mounted once for the node, in upstream's place, and goes with its last pod.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::process::Command;

use super::disk::{self, Disk};
use super::progress::Progress;
use super::{VolumeError, Warning, blocking, dir, group, mount};
use crate::alone::Alone;
use crate::core::growth::{self, Growth};
use crate::core::layout::{Layout, VolumeId};
use crate::core::mounts;
use crate::core::spec::Local;
use crate::job::Jobs;

const NEW: &str = "MountVolume.NewMounter initialization failed";
const DEVICE: &str = "MountVolume.MountDevice failed";
/// How long changing a mount's options may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Mounts the volume for a pod, unless it is there already.
///
/// # Errors
/// When it is not there or cannot be mounted.
pub async fn set_up(
    layout: &Layout,
    id: &VolumeId,
    local: &Local,
    alone: &Alone,
    progress: &Progress,
) -> Result<Option<Warning>, VolumeError> {
    let _alone = alone.with(name(id)).await;
    let path = PathBuf::from(&local.path);
    let is_disk = blocking(move || is_disk(&path)).await;
    let from = match is_disk.map_err(|error| error.during(NEW))? {
        false => PathBuf::from(&local.path),
        true => {
            let at = layout.local_disk(&id.name);
            let mounted = mount_disk(local, &at).await;
            mounted.map_err(|error| error.during(DEVICE))?;
            at
        }
    };
    let at = layout.volume(id);
    let there = at.clone();
    let warning = match blocking(move || is_mount(&there)).await? {
        true => {
            // Whoever mounted it may have been ended before it had its options.
            options(local, &from, &at).await?;
            None
        }
        false => mount_for_pod(layout, id, local, &from, progress).await?,
    };
    if local.size.growth == Growth::Asked {
        let done = enlarge(Path::new(&local.path), &at).await;
        done.map_err(|error| error.during(growth::MOUNTING))?;
    }
    Ok(warning)
}

/// Makes the file system of a disk as large as the disk is; with a directory there is nothing to do.
///
/// # Errors
/// When it is neither, or cannot be made larger.
pub async fn grow(
    layout: &Layout,
    id: &VolumeId,
    local: &Local,
    alone: &Alone,
) -> Result<(), VolumeError> {
    let _alone = alone.with(name(id)).await;
    enlarge(Path::new(&local.path), &layout.volume(id)).await
}

async fn enlarge(path: &Path, at: &Path) -> Result<(), VolumeError> {
    let place = path.to_owned();
    if !blocking(move || is_disk(&place)).await? {
        return Ok(());
    }
    disk::grow(path, at).await.map_err(VolumeError::Local)
}

async fn mount_for_pod(
    layout: &Layout,
    id: &VolumeId,
    local: &Local,
    from: &Path,
    progress: &Progress,
) -> Result<Option<Warning>, VolumeError> {
    let at = layout.volume(id);
    let (layout, volume, wants) = (layout.clone(), id.clone(), local.clone());
    let (source, progress) = (from.to_owned(), progress.clone());
    // Before it is mounted: whoever finds it mounted finds all done.
    let warning = blocking(move || give(&layout, &volume, &wants, &source, &progress)).await?;
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
    if let Err(error) = options(local, from, &at).await {
        mount::unmount(&at)?;
        return Err(error);
    }
    Ok(warning)
}

/// Takes the volume away from a pod, and a disk from the node when no other pod has it.
///
/// # Errors
/// When it cannot be unmounted.
pub async fn tear_down(
    layout: &Layout,
    id: &VolumeId,
    alone: &Alone,
    jobs: &Jobs,
) -> Result<(), VolumeError> {
    let _alone = alone.with(name(id)).await;
    super::tear_down::unmount_all(&layout.volume(id), jobs).await?;
    let disk = layout.local_disk(&id.name);
    let (at, pods) = (disk.clone(), layout.pods());
    let last = blocking(move || {
        let table = mount::table()?;
        let mut others = mounts::elsewhere(&table, &at).into_iter();
        Ok(at.exists() && !others.any(|mount| mount.at.starts_with(&pods)))
    });
    if !last.await? {
        return Ok(());
    }
    super::tear_down::unmount_all(&disk, jobs).await?;
    blocking(move || match fs::remove_dir(&disk) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(VolumeError::Remove { path: disk, source })
        }
        _ => Ok(()),
    })
    .await
}

fn name(id: &VolumeId) -> String {
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
    Ok(mount::table()?.iter().any(|mount| mount.at == path))
}

/// Whether it is a disk, and not a directory.
fn is_disk(path: &Path) -> Result<bool, VolumeError> {
    let wrong = |why: String| Err(VolumeError::Local(why));
    match fs::metadata(path) {
        Ok(is) if is.is_dir() => Ok(false),
        Ok(is) if is.file_type().is_block_device() => Ok(true),
        Ok(_) => wrong("only directory and block device are supported".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => wrong(format!(
            "path {:?} does not exist",
            path.display().to_string()
        )),
        Err(source) => Err(VolumeError::Open {
            path: path.to_owned(),
            source,
        }),
    }
}

async fn mount_disk(local: &Local, at: &Path) -> Result<(), VolumeError> {
    let place = at.to_owned();
    let there = blocking(move || {
        fs::create_dir_all(&place).map_err(|source| VolumeError::MakeDir {
            path: place.clone(),
            source,
        })?;
        is_mount(&place)
    });
    if there.await? {
        return Ok(());
    }
    let mut options = local.mount_options.clone();
    if local.read_only {
        options.push("ro".to_owned());
    }
    options.sort_unstable();
    options.dedup();
    let disk = Disk {
        device: Path::new(&local.path),
        at,
        fs_type: &local.fs_type,
        options: &options,
    };
    disk::mount(&disk).await.map_err(|error| {
        // It stays for the next attempt where somebody is in it.
        let _ = fs::remove_dir(at);
        let (path, kind) = (&local.path, &local.fs_type);
        let at = at.display();
        let why = error.why;
        let why =
            format!("local: failed to mount device {path} at {at} (fstype: {kind}), error {why}");
        match error.mismatch {
            true => VolumeError::Mismatch(why),
            false => VolumeError::Local(why),
        }
    })
}

/// Gives all in the volume to the group of its first pod; that of others is told where it differs.
fn give(
    layout: &Layout,
    id: &VolumeId,
    local: &Local,
    from: &Path,
    progress: &Progress,
) -> Result<Option<Warning>, VolumeError> {
    let Some(gid) = local.gid else {
        return Ok(None);
    };
    let open = dir::open(from)?;
    let unread = |source| VolumeError::Open {
        path: from.to_owned(),
        source,
    };
    let real = fs::canonicalize(from).map_err(unread)?;
    let (table, pods) = (mount::table()?, layout.pods());
    let mut of_pods = mounts::elsewhere(&table, &real).into_iter();
    if !of_pods.any(|mount| mount.at.starts_with(&pods)) {
        group::give(&open, from, gid, local.on_root_mismatch, progress)?;
        return Ok(None);
    }
    let has = fs::metadata(from).map_err(unread)?.gid();
    Ok((has != gid).then(|| Warning {
        reason: "AlreadyMountedVolume",
        message: format!(
            "The requested fsGroup is {gid}, but the volume {} has GID {has}. The volume may not be shareable.",
            id.name
        ),
    }))
}

/// Gives the pod's mount its options. What the source does not allow stays so.
async fn options(local: &Local, from: &Path, at: &Path) -> Result<(), VolumeError> {
    if !local.read_only && local.mount_options.is_empty() {
        return Ok(());
    }
    let is = statvfs(from).map_err(|errno| failed(from, errno.into()))?;
    let kept = [
        (StatVfsMountFlags::RDONLY, "ro"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NOATIME, "noatime"),
        (StatVfsMountFlags::RELATIME, "relatime"),
        (StatVfsMountFlags::NODIRATIME, "nodiratime"),
    ];
    let kept = kept.iter().filter(|(flag, _)| is.f_flag.contains(*flag));
    let kept = kept.map(|(_, option)| *option);
    let own = local.mount_options.iter().map(String::as_str);
    let all = ["bind", "remount"].into_iter().chain(kept).chain(own);
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
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(failed(at, std::io::Error::other(said)))
}
