//! File systems, from `statvfs`.

use std::path::Path;

use crate::core::signal::Observation;

/// The space and inodes of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filesystem {
    pub(crate) bytes: Observation,
    pub(crate) inodes: Observation,
    /// The device number.
    pub(crate) id: u64,
}

/// The file system of `path`; `None` when the call fails.
pub(crate) fn stat(path: &Path) -> Option<Filesystem> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Filesystem {
        bytes: Observation {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
        },
        inodes: Observation {
            available: stat.f_ffree,
            capacity: stat.f_files,
        },
        id: rustix::fs::stat(path).ok()?.st_dev,
    })
}
