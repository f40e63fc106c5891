//! Local persistent volumes: a directory or a disk of the node, bind-mounted for each pod. A disk is
//! mounted once for the node, at upstream's path, until its last pod is gone.

use std::fs;
use std::path::{Path, PathBuf};

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use polylet_kit::{CancellationToken, report};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::{Deserialize, Serialize};

use super::format::{MountDiskTask, ResizeDiskTask};
use super::fs_group::{self, SetOwnershipTask};
use super::host_path::{self, PathType};
use super::progress::OwnershipProgress;
use super::{VolumeError, Warning, blocking, dir, mount, program};
use crate::core::layout::{Layout, VolumeId};
use crate::core::mount_plan::LocalVolume;
use crate::core::mounts;
use crate::core::resize::{self, Expansion};
use crate::keyed_lock::KeyedMutex;
use crate::subprocess::Subprocesses;

const NEW_MOUNTER: &str = "MountVolume.NewMounter initialization failed";
const MOUNT_DEVICE: &str = "MountVolume.MountDevice failed";

/// The node's volumes and the means to mount them.
#[derive(Debug, Clone, Copy)]
pub struct LocalVolumes<'a> {
    /// The paths of volumes.
    pub layout: &'a Layout,
    /// One operation at a time on each volume.
    pub locks: &'a KeyedMutex,
    /// For calls to the volume's file system.
    pub subprocesses: &'a Subprocesses,
}

/// Binds a volume for a pod, in a child process: the volume may be on a file system that does not
/// answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindLocalTask {
    from: PathBuf,
    at: PathBuf,
    /// It is bound already; its options may be missing.
    bound: bool,
    options: Vec<String>,
    /// The volumes of all pods.
    pods: PathBuf,
    ownership: Option<SetOwnershipTask>,
}

impl SubprocessTask for BindLocalTask {
    const NAME: &'static str = "bind-local";
    /// The number of files whose owner has been changed.
    type Progress = u64;
    /// The group that the volume has for other pods, if that is not the pod's.
    type Output = Result<Option<u32>, String>;

    fn key(&self) -> String {
        self.from.display().to_string()
    }

    fn run(self, progress: &mut TaskProgress<u64>) -> Self::Output {
        self.bind(|files| progress.report(|| files))
            .map_err(|error| report(&error))
    }
}

/// Mounts the volume for a pod, unless it is mounted already.
pub async fn set_up(
    volumes: LocalVolumes<'_>,
    id: &VolumeId,
    local: &LocalVolume,
    progress: &OwnershipProgress,
    cancel: &CancellationToken,
) -> Result<Option<Warning>, VolumeError> {
    let LocalVolumes {
        layout,
        locks,
        subprocesses,
    } = volumes;
    let _lock = locks.lock(lock_key(id)).await;
    let is_disk = is_disk(Path::new(&local.path), id, subprocesses).await;
    let from = match is_disk.map_err(|error| error.in_step(NEW_MOUNTER))? {
        false => PathBuf::from(&local.path),
        true => {
            let at = layout.local_disk(&id.name);
            let mounted = mount_disk(local, &at, id, subprocesses).await;
            mounted.map_err(|error| error.in_step(MOUNT_DEVICE))?;
            at
        }
    };
    let at = layout.volume(id);
    let target = at.clone();
    let task = BindLocalTask {
        // The process that mounted it may have ended before it set the options.
        bound: blocking(move || is_mount(&target)).await?,
        options: own_options(local),
        pods: layout.pods(),
        ownership: local.gid.map(|gid| SetOwnershipTask {
            path: from.clone(),
            gid,
            on_root_mismatch: local.on_root_mismatch,
        }),
        from,
        at,
    };
    let other_group = {
        let _change = task.ownership.as_ref().map(|_| progress.begin());
        let on_progress = |files| progress.set_files(files);
        let done = subprocesses.walk(&id.uid, &task, cancel, on_progress);
        done.await?.map_err(VolumeError::Task)?
    };
    if local.size.expansion == Expansion::Requested {
        let done = expand_disk(Path::new(&local.path), id, volumes).await;
        done.map_err(|error| error.in_step(resize::MOUNT_STEP))?;
    }
    let warning = |has| Warning {
        reason: "AlreadyMountedVolume",
        message: format!(
            "The requested fsGroup is {}, but the volume {} has GID {has}. The volume may not be shareable.",
            local.gid.unwrap_or_default(),
            id.name
        ),
    };
    Ok(other_group.map(warning))
}

/// Resizes the file system of a disk to the size of the disk; nothing for a directory.
pub async fn expand(
    volumes: LocalVolumes<'_>,
    id: &VolumeId,
    local: &LocalVolume,
) -> Result<(), VolumeError> {
    let _lock = volumes.locks.lock(lock_key(id)).await;
    expand_disk(Path::new(&local.path), id, volumes).await
}

async fn expand_disk(
    path: &Path,
    id: &VolumeId,
    volumes: LocalVolumes<'_>,
) -> Result<(), VolumeError> {
    if !is_disk(path, id, volumes.subprocesses).await? {
        return Ok(());
    }
    let task = ResizeDiskTask {
        device: path.to_owned(),
        at: volumes.layout.volume(id),
    };
    let done = volumes.subprocesses.call(&id.uid, &task).await?;
    done.map_err(VolumeError::Local)
}

/// Unmounts the volume for a pod, and a disk from the node when no other pod has it.
pub async fn tear_down(volumes: LocalVolumes<'_>, id: &VolumeId) -> Result<(), VolumeError> {
    let LocalVolumes {
        layout,
        locks,
        subprocesses,
    } = volumes;
    let _lock = locks.lock(lock_key(id)).await;
    super::tear_down::unmount_all(&layout.volume(id), &id.uid, subprocesses).await?;
    let disk = layout.local_disk(&id.name);
    let (at, pods) = (disk.clone(), layout.pods());
    let last = blocking(move || {
        let table = mount::table()?;
        let mut others = mounts::other_mounts(&table, &at).into_iter();
        let exists = dir::exists(&at).map_err(|source| VolumeError::Open {
            path: at.clone(),
            source,
        })?;
        Ok(exists && !others.any(|mount| mount.mount_point.starts_with(&pods)))
    });
    if !last.await? {
        return Ok(());
    }
    super::tear_down::unmount_all(&disk, &id.uid, subprocesses).await?;
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
async fn is_disk(
    path: &Path,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<bool, VolumeError> {
    let invalid = |message: String| Err(VolumeError::Local(message));
    match host_path::type_for_pod(path, &id.uid, subprocesses).await? {
        PathType::Directory => Ok(false),
        PathType::BlockDevice => Ok(true),
        PathType::Other => invalid("only directory and block device are supported".to_owned()),
        PathType::Missing => invalid(format!(
            "path {:?} does not exist",
            path.display().to_string()
        )),
    }
}

async fn mount_disk(
    local: &LocalVolume,
    at: &Path,
    id: &VolumeId,
    subprocesses: &Subprocesses,
) -> Result<(), VolumeError> {
    let target = at.to_owned();
    let is_mounted = blocking(move || {
        dir::create_all(&target, 0o755).map_err(|source| VolumeError::MakeDir {
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
    let task = MountDiskTask {
        device: PathBuf::from(&local.path),
        at: at.to_owned(),
        fs_type: local.fs_type.clone(),
        options,
    };
    let (path, fs_type) = (&local.path, &local.fs_type);
    match subprocesses.call(&id.uid, &task).await? {
        Ok(mounted) => {
            if mounted.formatted {
                tracing::info!(path, fs_type, "formatted an empty disk");
            }
            if let Some(present) = mounted.mismatch {
                tracing::warn!(
                    path,
                    present,
                    fs_type,
                    "disk has another file system than specified"
                );
            }
            if let Some(error) = mounted.check_error {
                tracing::warn!(path, error, "failed to run fsck; mounted without a check");
            }
            Ok(())
        }
        Err(error) => {
            // Fails if the directory is in use; the next attempt uses it then.
            let _ = fs::remove_dir(at);
            let (at, cause) = (at.display(), error.message);
            let message = format!(
                "local: failed to mount device {path} at {at} (fstype: {fs_type}), error {cause}"
            );
            Err(match error.mismatch {
                true => VolumeError::FilesystemMismatch(message),
                false => VolumeError::Local(message),
            })
        }
    }
}

/// The options of the pod's mount, besides those of its source.
fn own_options(local: &LocalVolume) -> Vec<String> {
    let own = local.mount_options.iter().map(String::as_str);
    let all = own.chain(local.read_only.then_some("ro"));
    all.map(str::to_owned).collect()
}

impl BindLocalTask {
    fn bind(&self, on_progress: impl FnMut(u64)) -> Result<Option<u32>, VolumeError> {
        if self.bound {
            self.set_options()?;
            return Ok(None);
        }
        // Before the mount, so that a mounted volume is complete.
        let other_group = self.set_ownership(on_progress)?;
        dir::create_all(&self.at, 0o755).map_err(|source| VolumeError::MakeDir {
            path: self.at.clone(),
            source,
        })?;
        let bound = rustix::mount::mount_bind(&self.from, &self.at);
        bound.map_err(|errno| failed(&self.at, errno.into()))?;
        if let Err(error) = self.set_options() {
            mount::unmount(&self.at)?;
            return Err(error);
        }
        Ok(other_group)
    }

    /// Changes the ownership to the `fsGroup` of the first pod; returns the group that differs from
    /// that of another pod.
    fn set_ownership(&self, on_progress: impl FnMut(u64)) -> Result<Option<u32>, VolumeError> {
        let Some(task) = &self.ownership else {
            return Ok(None);
        };
        let real = fs::canonicalize(&self.from).map_err(|source| VolumeError::Open {
            path: self.from.clone(),
            source,
        })?;
        let table = mount::table()?;
        let mut of_pods = mounts::other_mounts(&table, &real).into_iter();
        if !of_pods.any(|mount| mount.mount_point.starts_with(&self.pods)) {
            task.set_ownership(on_progress)?;
            return Ok(None);
        }
        let has = fs_group::group(&self.from)?;
        Ok((has != task.gid).then_some(has))
    }

    /// Sets the options of the pod's mount, in addition to those of its source.
    fn set_options(&self) -> Result<(), VolumeError> {
        if self.options.is_empty() {
            return Ok(());
        }
        let stat = statvfs(&self.from).map_err(|errno| failed(&self.from, errno.into()))?;
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
        let own = self.options.iter().map(String::as_str);
        let all: Vec<_> = ["bind", "remount"]
            .into_iter()
            .chain(inherited)
            .chain(own)
            .collect();
        let at = self.at.display().to_string();
        program::mount(&["-o", &all.join(","), &at])
            .map_err(|error| failed(&self.at, std::io::Error::other(error)))
    }
}
