//! Binds subPaths to mount points that only the node can write to.
//!
//! A process that writes to a volume may swap a directory for a link at any moment. So the subPath
//! is resolved once, opened below the volume without following links, and the open file is what gets
//! mounted: no path that a pod can write to is resolved again. A link may lead to another path in
//! the volume; one that leads out of it is refused.
//!
//! Runs in a child process ([`crate::subprocess`]): a link may lead to a server that does not answer.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use std::time::Duration;

use polylet_kit::report;
use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dir;
use crate::core::layout;
use crate::core::sub_path::{ContainerSubPaths, SubPath, SubPathStage};

/// How often to retry when the mount point changes in between.
const MAX_ATTEMPTS: usize = 8;

/// The deadline, which the start of a container waits for.
const DEADLINE: Duration = Duration::from_secs(10);

/// Binds the subPaths of a container.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindSubPathsTask(pub ContainerSubPaths);

/// The first subPath that cannot be bound.
#[derive(Debug, Serialize, Deserialize)]
pub struct FailedSubPath {
    /// The stage that failed.
    pub stage: SubPathStage,
    /// The name of its volume.
    pub volume: String,
    /// The error, for the log.
    pub error: String,
}

impl SubprocessTask for BindSubPathsTask {
    const NAME: &'static str = "bind-sub-paths";
    type Progress = ();
    type Output = Result<(), FailedSubPath>;

    fn key(&self) -> String {
        format!("{} {}", self.0.pod_dir.display(), self.0.container)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        bind_all(&self.0).map_err(|error| FailedSubPath {
            error: report(&error),
            stage: error.stage,
            volume: error.volume,
        })
    }
}

/// Why a subPath cannot be bound.
#[derive(Debug, Error)]
#[error("subPath \"{path}\" of volume \"{volume}\": {action}")]
pub struct SubPathError {
    /// The stage that failed.
    pub stage: SubPathStage,
    /// The name of the volume.
    pub volume: String,
    /// The subPath.
    pub path: String,
    /// The action that failed.
    action: String,
    /// The system error.
    #[source]
    source: io::Error,
}

/// A failed stage with action and error.
struct StageError(SubPathStage, String, io::Error);

/// Binds all subPaths of a container, up to the first failure.
pub fn bind_all(all: &ContainerSubPaths) -> Result<(), SubPathError> {
    for (base, part) in &all.sub_paths {
        bind_one(&all.pod_dir, &all.container, base, part).map_err(
            |StageError(stage, action, source)| SubPathError {
                stage,
                volume: part.volume.clone(),
                path: part.path.clone(),
                action,
                source,
            },
        )?;
    }
    Ok(())
}

fn bind_one(pod: &Path, container: &str, base: &Path, part: &SubPath) -> Result<(), StageError> {
    let failed = |action: &str| {
        let action = action.to_owned();
        move |source: io::Error| StageError(SubPathStage::Prepare, action, source)
    };
    let base = fs::canonicalize(base).map_err(failed("resolving the volume"))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(&base, flags | OFlags::NOFOLLOW, Mode::empty());
    let root = root.map_err(|errno| failed("opening the volume")(errno.into()))?;
    let mut path = base.clone();
    path.extend(names(&part.path));
    if let Err(error) = fs::metadata(&path)
        && error.kind() == io::ErrorKind::NotFound
    {
        create_missing(&root, &base, &part.path)
            .map_err(|source| StageError(SubPathStage::Create, "creating it".to_owned(), source))?;
    }
    let real = fs::canonicalize(&path).map_err(failed("resolving it"))?;
    let opened = open_inside(&root, &base, &real, flags)
        .and_then(refuse_link)
        .map_err(failed("opening it"))?;
    let parent =
        parent_of(pod, container, &part.volume).map_err(failed("creating the mount point"))?;
    let target = layout::sub_path(pod, &part.volume, container, part.mount_index);
    bind(&opened, &parent, &target, part.mount_index).map_err(failed("binding it"))
}

/// Opens a path without links; an error if it is not below the volume.
fn open_inside(root: &OwnedFd, base: &Path, real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let Ok(rest) = real.strip_prefix(base) else {
        return Err(io::Error::other("it leads out of the volume"));
    };
    if rest.as_os_str().is_empty() {
        let same = openat(root, ".", flags, Mode::empty());
        // A volume that is a file is open already.
        return match same {
            Err(Errno::NOTDIR) => root.try_clone(),
            opened => Ok(opened?),
        };
    }
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, rest, flags, Mode::empty(), inside)?)
}

/// Refuses a link: once mounted, it would be followed.
fn refuse_link(opened: OwnedFd) -> io::Result<OwnedFd> {
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Ok(opened),
    }
}

/// Creates the missing directories of a path, with the mode of the volume: a pod that may write to
/// the volume may write to them.
fn create_missing(root: &OwnedFd, base: &Path, path: &str) -> io::Result<()> {
    let mode = fstat(root)?.st_mode & 0o7777;
    let (mut resolved, mut missing) = (base.to_owned(), Vec::new());
    for name in names(path) {
        if !missing.is_empty() {
            missing.push(name);
            continue;
        }
        match fs::canonicalize(resolved.join(name)) {
            Ok(real) => resolved = real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(name),
            Err(error) => return Err(error),
        }
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = open_inside(root, base, &resolved, directory)?;
    for name in missing {
        dir = make(&dir, name, mode)?;
    }
    Ok(())
}

/// The components of a relative path, without `.`.
fn names(path: &str) -> impl Iterator<Item = &OsStr> {
    Path::new(path).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn make(parent: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    let name = name.to_str().ok_or(Errno::ILSEQ)?;
    // Another container of the pod may create it at the same time.
    Ok(dir::make(parent, name, mode)?.0)
}

/// The directory of the mount points of a container's subPaths of one volume. The pod's directory is
/// not created again.
fn parent_of(pod: &Path, container: &str, volume: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let pod = rustix::fs::open(pod, flags, Mode::empty())?;
    let mut dir = pod;
    for name in [layout::SUB_PATHS, volume, container] {
        dir = dir::make(&dir, name, 0o750)?.0;
    }
    Ok(dir)
}

/// Mounts an open file, unless exactly that is mounted already.
fn bind(opened: &OwnedFd, parent: &OwnedFd, target: &Path, index: u32) -> io::Result<()> {
    let name = index.to_string();
    let source = fstat(opened)?;
    for _ in 0..MAX_ATTEMPTS {
        match mounted_at(parent.as_fd(), &name)? {
            Some(mounted) if is_same(&mounted, &source) => return Ok(()),
            Some(_) => match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            },
            None => {
                make_target(parent, &name, &source)?;
                let clone = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_EMPTY_PATH;
                let tree = open_tree(opened, "", clone)?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                return Ok(move_mount(&tree, "", parent, &name, flags)?);
            }
        }
    }
    Err(io::Error::other(
        "the mount point is in use by other mounts",
    ))
}

/// What is mounted at `name`; `None` if nothing is.
fn mounted_at(parent: BorrowedFd<'_>, name: &str) -> io::Result<Option<Stat>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        stay | ResolveFlags::NO_XDEV,
    ) {
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(Errno::XDEV) => {
            let over = openat2(parent, name, flags, Mode::empty(), stay)?;
            Ok(Some(fstat(over)?))
        }
        Err(errno) => Err(errno.into()),
    }
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Creates the mount point: a directory for a directory, an empty file for everything else.
fn make_target(parent: &OwnedFd, name: &str, source: &Stat) -> io::Result<()> {
    let is_dir = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let source_is_dir = is_dir(source);
    match dir::stat(parent, name)? {
        Some(present) if is_dir(&present) == source_is_dir => return Ok(()),
        Some(present) if is_dir(&present) => {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
        }
        Some(_) => rustix::fs::unlinkat(parent, name, AtFlags::empty())?,
        None => {}
    }
    if source_is_dir {
        dir::make(parent, name, 0o750)?;
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::from_raw_mode(0o640))?;
    }
    Ok(())
}
