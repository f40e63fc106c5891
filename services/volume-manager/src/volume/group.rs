//! Gives all that a volume holds to the pod's group, as upstream does it: what the owner may do the
//! group may do, and what is made there later belongs to it too.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, chownat, fchmod, fstat, openat, statat,
};
use rustix::io::Errno;

use super::progress::Progress;
use super::{VolumeError, dir};

const OF_DIRECTORY: u32 = 0o2770;
const OF_FILE: u32 = 0o660;
/// Nobody nests directories that deep; a link that loops is not followed at all.
const DEEPEST: usize = 512;

/// Gives a directory and everything below it to the group.
/// With `lazy` what is right at the root is taken to be right all the way down (`OnRootMismatch`).
pub fn give(
    root: &OwnedFd,
    path: &Path,
    gid: u32,
    lazy: bool,
    progress: &Progress,
) -> Result<(), VolumeError> {
    let failed = |errno: Errno| VolumeError::Own {
        path: path.to_owned(),
        source: errno.into(),
    };
    if lazy && is_right(&fstat(root).map_err(failed)?, gid) {
        return Ok(());
    }
    let _under = progress.begin();
    below(root, gid, 0, progress).map_err(failed)?;
    progress.file();
    directory(root, gid).map_err(failed)
}

/// Deepest first: a walk that was broken off begins anew, since the root is done last.
fn below(dir: &OwnedFd, gid: u32, depth: usize, progress: &Progress) -> rustix::io::Result<()> {
    if depth > DEEPEST {
        return Err(Errno::LOOP);
    }
    for (name, kind) in dir::names(dir)? {
        let done = match kind {
            FileType::Directory => inside(dir, &name, gid, depth, progress),
            FileType::RegularFile => file(dir, &name, gid),
            _ => own(dir, &name, gid),
        };
        progress.file();
        match done {
            // It went meanwhile.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn inside(
    parent: &OwnedFd,
    name: &CStr,
    gid: u32,
    depth: usize,
    progress: &Progress,
) -> rustix::io::Result<()> {
    let dir = match dir::open_on_same(parent, name) {
        // Another file system is mounted there: it is not the volume's.
        Err(Errno::XDEV) => return Ok(()),
        opened => opened?,
    };
    below(&dir, gid, depth + 1, progress)?;
    directory(&dir, gid)
}

fn directory(dir: &OwnedFd, gid: u32) -> rustix::io::Result<()> {
    let is = fstat(dir)?;
    let mode = (is.st_mode & 0o7777) | OF_DIRECTORY;
    if is.st_gid == gid && is.st_mode & 0o7777 == mode {
        return Ok(());
    }
    dir::own(dir, mode, Some(gid))
}

/// The root is done last, so that where it is right all was done before.
fn is_right(root: &Stat, gid: u32) -> bool {
    root.st_gid == gid && root.st_mode & OF_DIRECTORY == OF_DIRECTORY
}

fn own(dir: impl AsFd, name: &CStr, gid: u32) -> rustix::io::Result<()> {
    chownat(
        dir,
        name,
        None,
        Some(Gid::from_raw(gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

fn file(dir: &OwnedFd, name: &CStr, gid: u32) -> rustix::io::Result<()> {
    let is = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = (is.st_mode & 0o7777) | OF_FILE;
    if is.st_gid == gid && is.st_mode & 0o7777 == mode {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = openat(dir, name, flags, Mode::empty())?;
    own(dir, name, gid)?;
    fchmod(&open, Mode::from_raw_mode(mode))
}
