//! Access to directories by descriptor: no name is resolved twice, no symbolic link is followed.

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

/// Opens a directory by a path that pods cannot write to: links in it are followed.
pub fn open(path: &Path) -> Result<OwnedFd, VolumeError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| VolumeError::Open {
        path: path.to_owned(),
        source: errno.into(),
    })
}

/// Opens a directory below another, without following links.
pub fn open_below(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(parent, name, DIRECTORY, Mode::empty(), inside)
}

/// The same, on the same file system only.
pub fn open_on_same_fs(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(parent, name, DIRECTORY, Mode::empty(), inside)
}

/// Creates a directory; returns whether it did not exist. What is mounted there is not accessed.
pub fn create(parent: impl AsFd, name: &str, mode: u32) -> rustix::io::Result<bool> {
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Creates a directory with this mode, and its parents; success if it exists. What is mounted there
/// is not accessed.
pub fn create_all(path: &Path, mode: u32) -> io::Result<()> {
    let mkdir = |path: &Path| match rustix::fs::mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    };
    match (mkdir(path), path.parent()) {
        (Err(Errno::NOENT), Some(parent)) => {
            create_all(parent, mode)?;
            Ok(mkdir(path)?)
        }
        (done, _) => Ok(done?),
    }
}

/// Whether a path exists, without access to what is mounted there.
pub fn exists(path: &Path) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(true);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(parent, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
        Ok(_) | Err(Errno::XDEV) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory, and creates it with exactly this mode if it does not exist; returns whether it
/// was created.
pub fn make(parent: impl AsFd, name: &str, mode: u32) -> rustix::io::Result<(OwnedFd, bool)> {
    let parent = parent.as_fd();
    let created = create(parent, name, mode)?;
    let dir = openat(parent, name, DIRECTORY, Mode::empty())?;
    if created {
        // mkdir applies the umask.
        fchmod(&dir, Mode::from_raw_mode(mode))?;
    }
    Ok((dir, created))
}

/// Opens the path `parts` below `path`; missing directories are created with mode 0750.
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

/// Sets group and mode of a file or directory.
pub fn set_owner(file: impl AsFd, mode: u32, gid: Option<u32>) -> rustix::io::Result<()> {
    set_owner_as(file, mode, None, gid)
}

/// Sets user and group, if given, and the mode of a file.
pub fn set_owner_as(
    file: impl AsFd,
    mode: u32,
    uid: Option<u32>,
    gid: Option<u32>,
) -> rustix::io::Result<()> {
    let file = file.as_fd();
    if uid.is_some() || gid.is_some() {
        fchown(file, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    // After the owner: chown clears the set-group-ID bit.
    fchmod(file, Mode::from_raw_mode(mode))
}

/// The names in a directory, without `.` and `..`. They are read in pieces: a pod may create any
/// number of them.
pub fn names(
    dir: impl AsFd,
) -> rustix::io::Result<impl Iterator<Item = rustix::io::Result<(CString, FileType)>>> {
    let entries = Dir::read_from(dir)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().to_owned(), entry.file_type()))
    });
    let is_name = |entry: &rustix::io::Result<(CString, FileType)>| match entry {
        Ok((name, _)) => ![c".", c".."].contains(&name.as_c_str()),
        Err(_) => true,
    };
    Ok(entries.filter(is_name))
}

/// The names in a directory; none if it does not exist.
pub fn names_at(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is not UTF-8 is no uid or volume name.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// The status of `name`, without following a link; `None` if it does not exist.
pub fn stat(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether `dir`, a child of `parent`, is a mount point.
pub fn is_mount(parent: impl AsFd, dir: impl AsFd) -> rustix::io::Result<bool> {
    Ok(fstat(parent)?.st_dev != fstat(dir)?.st_dev)
}
