//! The directories whose files may be read as logs of the node.

use std::fs::{self, File, Metadata};
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Where files may be.
#[derive(Clone, Debug)]
pub(crate) struct LogDirectories {
    /// `/var/log`
    root: PathBuf,
    /// `podLogsDir`, to which links in `/var/log/containers` lead.
    pods: PathBuf,
}

impl LogDirectories {
    pub(crate) fn new(root: impl Into<PathBuf>, pods: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            pods: pods.into(),
        }
    }

    /// Opens what a cleaned path names. The links are resolved first; afterwards none is followed, so that
    /// nobody can put one in between.
    pub(super) fn open(&self, path: &str) -> Result<(File, Metadata), Error> {
        let resolved = fs::canonicalize(self.root.join(path))?;
        let directories = [&self.root, &self.pods];
        let mut directories = directories
            .iter()
            .filter_map(|path| fs::canonicalize(path).ok());
        let directory = directories.find(|directory| resolved.starts_with(directory));
        let directory = directory.ok_or(ErrorKind::PermissionDenied)?;
        let file = open_below(&directory, &resolved)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() || metadata.is_file() {
            return Ok((file, metadata));
        }
        Err(ErrorKind::PermissionDenied.into())
    }

    /// Opens a path as Go's `os.Root` does: no link leads out of the directory of logs, not even to pods'.
    pub(super) fn open_strictly(&self, path: &str) -> Result<(File, Metadata), Error> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = openat(CWD, &self.root, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&root, path, flags, Mode::empty(), resolve)?);
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }
}

/// Why a file cannot be opened, in Go's words.
pub(super) fn reason(error: &Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::XDEV) => "path escapes from parent".to_owned(),
        Some(Errno::NOENT) => "no such file or directory".to_owned(),
        Some(Errno::NOTDIR) => "not a directory".to_owned(),
        Some(Errno::ACCESS) => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

fn open_below(directory: &Path, path: &Path) -> Result<File, Error> {
    let below = path.strip_prefix(directory).map_err(Error::other)?;
    let below = if below.as_os_str().is_empty() {
        Path::new(".")
    } else {
        below
    };
    // Opening a pipe does not wait for somebody who writes.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let directory: OwnedFd = openat(
        CWD,
        directory,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(&directory, below, flags, Mode::empty(), resolve)?;
    Ok(file.into())
}
