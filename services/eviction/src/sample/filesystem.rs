//! File systems, from `statvfs`.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{StatVfs, fstat, fstatvfs, stat, statvfs};
use serde::{Deserialize, Serialize};

use crate::core::signal::Observation;

/// The space and inodes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Filesystem {
    pub(crate) bytes: Observation,
    pub(crate) inodes: Observation,
    /// The device number.
    pub(crate) id: u64,
}

/// The file system of `path`. May never return: call it where that harms nobody.
pub(crate) fn measure(path: &Path) -> io::Result<Filesystem> {
    let device = stat(path)?.st_dev;
    Ok(filesystem(&statvfs(path)?, device))
}

/// The file system of an open file.
pub(crate) fn measure_open(file: impl AsFd) -> io::Result<Filesystem> {
    let device = fstat(&file)?.st_dev;
    Ok(filesystem(&fstatvfs(&file)?, device))
}

fn filesystem(stat: &StatVfs, id: u64) -> Filesystem {
    Filesystem {
        bytes: Observation {
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            capacity: stat.f_blocks.saturating_mul(stat.f_frsize),
        },
        inodes: Observation {
            available: stat.f_ffree,
            capacity: stat.f_files,
        },
        id,
    }
}
