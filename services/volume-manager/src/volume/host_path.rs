//! Checks what a hostPath is. The path is the user's: it may lie on a file system whose server is
//! dead, so whatever is not plainly local is looked at in a child process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::{VolumeError, dir, mount};
use crate::core::mounts;
use crate::core::spec::PathCheck;

/// Whether looking at the path can hang on nobody: every file system on the way is local, and no
/// link leads elsewhere.
pub fn is_local(path: &Path) -> bool {
    let Ok(table) = mount::table() else {
        return false;
    };
    let Some(last) = mounts::local_way(&table, path) else {
        return false;
    };
    let Ok(rest) = path.strip_prefix(&last.at) else {
        return false;
    };
    if rest.as_os_str().is_empty() {
        return true;
    }
    let Ok(start) = dir::open(&last.at) else {
        return false;
    };
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let found = openat2(
        start,
        rest,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        stay,
    );
    matches!(found, Ok(_) | Err(Errno::NOENT))
}

/// Checks it, and makes it where that was asked for. What is wrong is told as upstream tells it.
pub fn check(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    let at = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return make(path, check);
        }
        Err(source) => {
            return Err(VolumeError::Open {
                path: path.to_owned(),
                source,
            });
        }
    };
    let (right, wanted) = match check {
        PathCheck::None => (true, "anything"),
        PathCheck::DirectoryOrCreate | PathCheck::Directory => (found.is_dir(), "directory"),
        PathCheck::FileOrCreate | PathCheck::File => (found.is_file(), "file"),
        PathCheck::Socket => (found.is_socket(), "socket file"),
        PathCheck::CharDevice => (found.is_char_device(), "character device"),
        PathCheck::BlockDevice => (found.is_block_device(), "block device"),
    };
    if right {
        return Ok(());
    }
    let is = word(found);
    let why = format!("hostPath type check failed: {at} is not a {wanted}, it's a {is}");
    Err(VolumeError::HostPath(why))
}

fn make(path: &Path, check: PathCheck) -> Result<(), VolumeError> {
    let made = match check {
        PathCheck::None => Ok(()),
        PathCheck::DirectoryOrCreate => DirBuilder::new().recursive(true).mode(0o755).create(path),
        PathCheck::FileOrCreate => {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .mode(0o644)
                .open(path)
                .map(|_| ())
        }
        _ => {
            let why = format!("hostPath {} doesn't exist", path.display());
            return Err(VolumeError::HostPath(why));
        }
    };
    made.map_err(|source| VolumeError::Write {
        path: path.to_owned(),
        source,
    })
}

fn word(found: fs::FileType) -> &'static str {
    if found.is_dir() {
        "Directory"
    } else if found.is_file() {
        "File"
    } else if found.is_socket() {
        "Socket"
    } else if found.is_char_device() {
        "CharDevice"
    } else if found.is_block_device() {
        "BlockDevice"
    } else {
        "pipe"
    }
}
