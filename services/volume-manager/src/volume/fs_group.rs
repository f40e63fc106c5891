//! Changes the ownership of a volume to the pod's `fsGroup`, as upstream: the group gets the owner's
//! permissions, and new files inherit the group.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, chownat, fchmod, fstat, openat, statat,
};
use rustix::io::Errno;

use super::progress::OwnershipProgress;
use super::{VolumeError, dir};

const DIRECTORY_MODE: u32 = 0o2770;
const FILE_MODE: u32 = 0o660;
/// The deepest nesting of directories. Links are not followed.
const MAX_DEPTH: usize = 512;

/// Changes the ownership of a directory and everything below it. With `on_root_mismatch` a root that
/// is right stands for everything below it (`OnRootMismatch`).
pub fn set_ownership(
    root: &OwnedFd,
    path: &Path,
    gid: u32,
    on_root_mismatch: bool,
    progress: &OwnershipProgress,
) -> Result<(), VolumeError> {
    let failed = |errno: Errno| VolumeError::SetOwner {
        path: path.to_owned(),
        source: errno.into(),
    };
    if on_root_mismatch && is_right(&fstat(root).map_err(failed)?, gid) {
        return Ok(());
    }
    let _change = progress.begin();
    change_below(root, gid, 0, progress).map_err(failed)?;
    progress.count_file();
    change_dir(root, gid).map_err(failed)
}

/// Deepest first: since the root is changed last, an interrupted walk is repeated.
fn change_below(
    dir: &OwnedFd,
    gid: u32,
    depth: usize,
    progress: &OwnershipProgress,
) -> rustix::io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(Errno::LOOP);
    }
    for (name, kind) in dir::names(dir)? {
        let done = match kind {
            FileType::Directory => change_dir_below(dir, &name, gid, depth, progress),
            FileType::RegularFile => change_file(dir, &name, gid),
            _ => change_group(dir, &name, gid),
        };
        progress.count_file();
        match done {
            // Deleted in the meantime.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn change_dir_below(
    parent: &OwnedFd,
    name: &CStr,
    gid: u32,
    depth: usize,
    progress: &OwnershipProgress,
) -> rustix::io::Result<()> {
    let dir = match dir::open_on_same_fs(parent, name) {
        // Another file system is mounted there.
        Err(Errno::XDEV) => return Ok(()),
        opened => opened?,
    };
    change_below(&dir, gid, depth + 1, progress)?;
    change_dir(&dir, gid)
}

fn change_dir(dir: &OwnedFd, gid: u32) -> rustix::io::Result<()> {
    let stat = fstat(dir)?;
    let mode = (stat.st_mode & 0o7777) | DIRECTORY_MODE;
    if stat.st_gid == gid && stat.st_mode & 0o7777 == mode {
        return Ok(());
    }
    dir::set_owner(dir, mode, Some(gid))
}

/// The root is changed last: if it is right, everything is.
fn is_right(root: &Stat, gid: u32) -> bool {
    root.st_gid == gid && root.st_mode & DIRECTORY_MODE == DIRECTORY_MODE
}

fn change_group(dir: impl AsFd, name: &CStr, gid: u32) -> rustix::io::Result<()> {
    chownat(
        dir,
        name,
        None,
        Some(Gid::from_raw(gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

fn change_file(dir: &OwnedFd, name: &CStr, gid: u32) -> rustix::io::Result<()> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = (stat.st_mode & 0o7777) | FILE_MODE;
    if stat.st_gid == gid && stat.st_mode & 0o7777 == mode {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = openat(dir, name, flags, Mode::empty())?;
    change_group(dir, name, gid)?;
    fchmod(&open, Mode::from_raw_mode(mode))
}
