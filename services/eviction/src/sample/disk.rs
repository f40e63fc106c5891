//! File systems, by `statvfs`.

use std::path::Path;

use crate::core::signal::Level;

/// One file system: bytes and inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) bytes: Level,
    pub(crate) inodes: Level,
    /// Tells one file system from another.
    pub(crate) id: u64,
}

/// The file system that holds `path`; `None` when it cannot be asked.
pub(crate) fn of(path: &Path) -> Option<Disk> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Disk {
        bytes: Level {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
        },
        inodes: Level {
            available: stat.f_ffree,
            capacity: stat.f_files,
        },
        id: rustix::fs::stat(path).ok()?.st_dev,
    })
}
