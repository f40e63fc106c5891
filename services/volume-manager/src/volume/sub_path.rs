//! Binds parts of volumes to places that only the node can write to.
//!
//! Whoever writes to a volume may swap a directory for a link at any moment. So the part is found
//! by its path once, opened below the volume without following any link, and what was opened is
//! what gets mounted: no path that a pod can write to is looked at again. A link inside the volume
//! may lead to another place inside it; one that leads out is refused.
//!
//! Runs in a child process ([`crate::job`]): a link may also lead to a server that is dead.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dir;
use crate::core::layout;
use crate::core::sub_path::{Stage, SubPath};

/// What is mounted over a place may change under our hands, but not for ever.
const ATTEMPTS: usize = 8;

/// All parts of volumes that one container mounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Parts {
    /// The pod's directory.
    pub pod: PathBuf,
    /// The container.
    pub container: String,
    /// Each part, with its volume's place on the node.
    pub parts: Vec<(PathBuf, SubPath)>,
}

impl Parts {
    /// Where each part is bound.
    pub fn places(&self) -> Vec<String> {
        let place = |(_, part): &(PathBuf, SubPath)| {
            let (volume, index) = (&part.volume, part.mount_index);
            let place = layout::sub_path(&self.pod, volume, &self.container, index);
            place.to_string_lossy().into_owned()
        };
        self.parts.iter().map(place).collect()
    }
}

/// Why a part is not there.
#[derive(Debug, Error)]
#[error("subPath \"{path}\" of volume \"{volume}\": {doing}")]
pub struct SubPathError {
    /// What could not be done.
    pub stage: Stage,
    /// The volume.
    pub volume: String,
    /// The part.
    pub path: String,
    /// At which step.
    doing: String,
    /// What the system said.
    #[source]
    source: io::Error,
}

/// A step that failed, before it is known of which part.
struct Trouble(Stage, String, io::Error);

/// Binds all of them; the first that cannot be had ends it.
pub fn prepare(wanted: &Parts) -> Result<(), SubPathError> {
    for (base, part) in &wanted.parts {
        one(&wanted.pod, &wanted.container, base, part).map_err(
            |Trouble(stage, doing, source)| SubPathError {
                stage,
                volume: part.volume.clone(),
                path: part.path.clone(),
                doing,
                source,
            },
        )?;
    }
    Ok(())
}

fn one(pod: &Path, container: &str, base: &Path, part: &SubPath) -> Result<(), Trouble> {
    let at = |doing: &str| {
        let doing = doing.to_owned();
        move |source: io::Error| Trouble(Stage::Prepare, doing, source)
    };
    let base = fs::canonicalize(base).map_err(at("finding the volume"))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(&base, flags | OFlags::NOFOLLOW, Mode::empty());
    let root = root.map_err(|errno| at("opening the volume")(errno.into()))?;
    let mut path = base.clone();
    path.extend(names(&part.path));
    if let Err(error) = fs::metadata(&path)
        && error.kind() == io::ErrorKind::NotFound
    {
        create(&root, &base, &part.path)
            .map_err(|source| Trouble(Stage::Create, "making it".to_owned(), source))?;
    }
    let real = fs::canonicalize(&path).map_err(at("finding it"))?;
    let found = open_inside(&root, &base, &real, flags)
        .and_then(no_link)
        .map_err(at("opening it"))?;
    let parent = parent_of(pod, container, &part.volume).map_err(at("making its place"))?;
    let place = layout::sub_path(pod, &part.volume, container, part.mount_index);
    bind(&found, &parent, &place, part.mount_index).map_err(at("binding it"))
}

/// Opens what a path without links leads to, inside the volume or not at all.
fn open_inside(root: &OwnedFd, base: &Path, real: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let Ok(rest) = real.strip_prefix(base) else {
        return Err(io::Error::other("it leads out of its volume"));
    };
    if rest.as_os_str().is_empty() {
        let same = openat(root, ".", flags, Mode::empty());
        // A volume that is a file is opened already.
        return match same {
            Err(Errno::NOTDIR) => root.try_clone(),
            opened => Ok(opened?),
        };
    }
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, rest, flags, Mode::empty(), inside)?)
}

/// A link that is mounted would be followed by whoever looks at the mount.
fn no_link(found: OwnedFd) -> io::Result<OwnedFd> {
    match FileType::from_raw_mode(fstat(&found)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Ok(found),
    }
}

/// Makes what is missing of a path, with the mode of the volume itself: a pod that may write there
/// may also write here.
fn create(root: &OwnedFd, base: &Path, path: &str) -> io::Result<()> {
    let mode = fstat(root)?.st_mode & 0o7777;
    let (mut there, mut missing) = (base.to_owned(), Vec::new());
    for name in names(path) {
        if !missing.is_empty() {
            missing.push(name);
            continue;
        }
        match fs::canonicalize(there.join(name)) {
            Ok(real) => there = real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(name),
            Err(error) => return Err(error),
        }
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = open_inside(root, base, &there, directory)?;
    for name in missing {
        dir = make(&dir, name, mode)?;
    }
    Ok(())
}

/// The elements of a relative path, without those that say nothing.
fn names(path: &str) -> impl Iterator<Item = &OsStr> {
    Path::new(path).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn make(parent: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    let name = name.to_str().ok_or(Errno::ILSEQ)?;
    // Another container of the pod may make it at the same time.
    Ok(dir::make(parent, name, mode)?.0)
}

/// The directory that holds the places of one container's parts of one volume. A pod's directory
/// that has gone is not made again.
fn parent_of(pod: &Path, container: &str, volume: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let pod = rustix::fs::open(pod, flags, Mode::empty())?;
    let mut dir = pod;
    for name in [layout::SUB_PATHS, volume, container] {
        dir = dir::make(&dir, name, 0o750)?.0;
    }
    Ok(dir)
}

/// Mounts what was opened at its place, unless just that is mounted there already.
fn bind(found: &OwnedFd, parent: &OwnedFd, place: &Path, index: u32) -> io::Result<()> {
    let name = index.to_string();
    let wanted = fstat(found)?;
    for _ in 0..ATTEMPTS {
        match mounted_at(parent.as_fd(), &name)? {
            Some(there) if same(&there, &wanted) => return Ok(()),
            Some(_) => match rustix::mount::unmount(place, UnmountFlags::NOFOLLOW) {
                Ok(()) | Err(Errno::INVAL) => {}
                Err(errno) => return Err(errno.into()),
            },
            None => {
                make_target(parent, &name, &wanted)?;
                let clone = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_EMPTY_PATH;
                let tree = open_tree(found, "", clone)?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                return Ok(move_mount(&tree, "", parent, &name, flags)?);
            }
        }
    }
    Err(io::Error::other("something else keeps being mounted there"))
}

/// What is mounted at a place; `None` when nothing is.
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

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// A directory for a directory, and an empty file for all else.
fn make_target(parent: &OwnedFd, name: &str, wanted: &Stat) -> io::Result<()> {
    let is_dir = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let wants_dir = is_dir(wanted);
    match dir::look(parent, name)? {
        Some(there) if is_dir(&there) == wants_dir => return Ok(()),
        Some(there) if is_dir(&there) => {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
        }
        Some(_) => rustix::fs::unlinkat(parent, name, AtFlags::empty())?,
        None => {}
    }
    if wants_dir {
        dir::make(parent, name, 0o750)?;
    } else {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::from_raw_mode(0o640))?;
    }
    Ok(())
}
