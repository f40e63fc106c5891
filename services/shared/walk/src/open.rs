//! Opening entries without following a link and without entering a mount.
//!
//! `openat2` refuses to enter a mount (`RESOLVE_NO_XDEV`) before the mounted file system is asked for
//! anything, and so does `O_PATH` for the entry itself. A kernel before 5.6, or a sandbox that forbids
//! the call, is served by the mount table instead ([`MountsBelow`]): what is mounted after it was read
//! is entered by name, and left again at its device number.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::error::{WalkError, WalkOperation};

const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const INSIDE: ResolveFlags = ResolveFlags::NO_XDEV
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::BENEATH);

/// Opens the directory at which a walk starts. Links in its path are followed, and it may be a mount
/// point: pass a path that pods cannot write to.
///
/// # Errors
/// Fails if it is no directory or cannot be opened.
pub fn open_root(path: &Path) -> Result<OwnedFd, WalkError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
        let name = path.as_os_str().as_bytes();
        let name = std::ffi::CString::new(name).unwrap_or_default();
        WalkError::new(WalkOperation::Open, &name, errno)
    })
}

/// Opens a directory at a relative path below `parent`, on the same mount, without following links.
/// Asks nothing of a file system mounted there or on the way: that is `EXDEV`.
///
/// # Errors
/// `EXDEV` at a mount point; `ELOOP` or `ENOTDIR` at a link.
pub fn open_dir(
    parent: impl AsFd,
    path: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<OwnedFd> {
    open_inside(parent, path, DIRECTORY)
}

/// Opens an entry of whatever kind at a relative path below `parent` as `O_PATH`, likewise. A link is
/// opened itself.
///
/// # Errors
/// `EXDEV` at a mount point.
pub fn open_entry(
    parent: impl AsFd,
    path: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<OwnedFd> {
    open_inside(parent, path, ENTRY)
}

/// Whether `path` below `parent` is a mount point, or leads through one; nothing is asked of the
/// file system mounted there.
///
/// # Errors
/// Fails if it does not exist.
pub fn is_mount_point(
    parent: impl AsFd,
    path: impl rustix::path::Arg + Copy,
) -> rustix::io::Result<bool> {
    match open_entry(parent, path) {
        Ok(_) => Ok(false),
        Err(Errno::XDEV) => Ok(true),
        Err(errno) => Err(errno),
    }
}

fn open_inside(
    parent: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    if has_openat2() {
        return retry_again(|| openat2(parent.as_fd(), path, flags, Mode::empty(), INSIDE));
    }
    let parent = parent.as_fd();
    let below = MountsBelow::read(parent)?;
    let path = path.into_c_str()?;
    let mut dir = openat(parent, c".", ENTRY | OFlags::DIRECTORY, Mode::empty())?;
    let mut below = Some(below);
    let parts: Vec<&[u8]> = path.to_bytes().split(|byte| *byte == b'/').collect();
    for (index, part) in parts.iter().enumerate() {
        below = below.and_then(|below| below.enter(OsStr::from_bytes(part)));
        let Some(_) = &below else {
            return Err(Errno::XDEV);
        };
        let flags = if index + 1 == parts.len() {
            flags
        } else {
            ENTRY | OFlags::DIRECTORY
        };
        dir = openat(&dir, *part, flags, Mode::empty())?;
    }
    Ok(dir)
}

/// The kernel answers `EAGAIN` when a rename or a mount raced with the look-up.
fn retry_again(
    mut open: impl FnMut() -> rustix::io::Result<OwnedFd>,
) -> rustix::io::Result<OwnedFd> {
    const ATTEMPTS: u32 = 32;
    for _ in 1..ATTEMPTS {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    open()
}

/// Whether the kernel has `openat2` and the process may call it.
pub(crate) fn has_openat2() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let opened = openat2(CWD, c".", ENTRY, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        !matches!(opened, Err(Errno::NOSYS | Errno::PERM))
    })
}

/// The mount points below a directory, as paths relative to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountsBelow(Vec<PathBuf>);

impl MountsBelow {
    /// Reads the mount table for what is mounted below an open directory.
    pub(crate) fn read(dir: impl AsFd) -> rustix::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new())?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes())).to_owned();
        let mounts = polylet_machine::mountinfo::read()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let points = mounts.iter().map(|mount| mount.mount_point.as_path());
        Ok(Self::below(&path, points))
    }

    fn below<'a>(dir: &Path, points: impl Iterator<Item = &'a Path>) -> Self {
        let inside = points.filter_map(|point| point.strip_prefix(dir).ok());
        let inside = inside.filter(|point| !point.as_os_str().is_empty());
        Self(inside.map(Path::to_owned).collect())
    }

    /// The mount points below the entry `name`; `None` if it is one.
    pub(crate) fn enter(&self, name: &OsStr) -> Option<Self> {
        let inside = self
            .0
            .iter()
            .filter_map(|point| point.strip_prefix(name).ok());
        let inside: Vec<PathBuf> = inside.map(Path::to_owned).collect();
        let is_point = inside.iter().any(|point| point.as_os_str().is_empty());
        (!is_point).then_some(Self(inside))
    }

    /// The same for a name out of a listing.
    pub(crate) fn enter_entry(&self, name: &CStr) -> Option<Self> {
        self.enter(OsStr::from_bytes(name.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_by_name() {
        let points = ["/a", "/a/b/c", "/a/b/c/d", "/ab", "/a/x"].map(Path::new);
        let a = MountsBelow::below(Path::new("/a"), points.into_iter());
        assert_eq!(a.enter(OsStr::new("x")), None);
        assert_eq!(a.enter(OsStr::new("y")), Some(MountsBelow::default()));
        let b = a.enter(OsStr::new("b")).unwrap();
        assert_eq!(b.enter(OsStr::new("c")), None);
        assert_eq!(b.enter_entry(c"d"), Some(MountsBelow::default()));
    }
}
