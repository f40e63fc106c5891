//! Directories by descriptor: no name is looked up twice, no symbolic link is followed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchmod, fchown, fstat,
    mkdirat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::VolumeError;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// Opens a directory that the node's owner named: links in it are theirs.
pub fn open(path: &Path) -> Result<OwnedFd, VolumeError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| VolumeError::Open {
        path: path.to_owned(),
        source: errno.into(),
    })
}

/// Opens a directory below another.
pub fn open_below(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(parent, name, DIRECTORY, Mode::empty(), inside)
}

/// The same, on the same file system only.
pub fn open_on_same(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(parent, name, DIRECTORY, Mode::empty(), inside)
}

/// Opens a directory, made with exactly this mode if there is none. Says whether it was made.
pub fn make(parent: impl AsFd, name: &str, mode: u32) -> rustix::io::Result<(OwnedFd, bool)> {
    let parent = parent.as_fd();
    let made = match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    let dir = openat(parent, name, DIRECTORY, Mode::empty())?;
    if made {
        // The process's umask has a say in mkdir, not here.
        fchmod(&dir, Mode::from_raw_mode(mode))?;
    }
    Ok((dir, made))
}

/// Opens `parts` below `path`, each made with mode 0750 if there is none.
pub fn make_all(dir: OwnedFd, path: &Path, parts: &[&str]) -> Result<OwnedFd, VolumeError> {
    let mut dir = dir;
    let mut path = path.to_owned();
    for part in parts {
        path.push(part);
        let made = make(&dir, part, 0o750);
        let failed = |errno: Errno| VolumeError::MakeDir {
            path: path.clone(),
            source: errno.into(),
        };
        dir = made.map_err(failed)?.0;
    }
    Ok(dir)
}

/// Gives a file or directory its group and exactly this mode.
pub fn own(file: impl AsFd, mode: u32, gid: Option<u32>) -> rustix::io::Result<()> {
    own_as(file, mode, None, gid)
}

/// Gives a file its user and group, as far as they are said, and exactly this mode.
pub fn own_as(
    file: impl AsFd,
    mode: u32,
    uid: Option<u32>,
    gid: Option<u32>,
) -> rustix::io::Result<()> {
    let file = file.as_fd();
    if uid.is_some() || gid.is_some() {
        fchown(file, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    // After the owner: changing that takes the set-group bit away.
    fchmod(file, Mode::from_raw_mode(mode))
}

/// The names in a directory, without `.` and `..`.
pub fn names(dir: impl AsFd) -> rustix::io::Result<Vec<(CString, FileType)>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(names)
}

/// The names in a directory that may be missing.
pub fn names_at(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is not text is nobody's uid or volume.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// What is at `name`, without following it; `None` when nothing is.
pub fn look(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether another file system is mounted at `dir`, which lies in `parent`.
pub fn is_mount(parent: impl AsFd, dir: impl AsFd) -> rustix::io::Result<bool> {
    Ok(fstat(parent)?.st_dev != fstat(dir)?.st_dev)
}
