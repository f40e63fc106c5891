//! Disk usage of a directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat, fstat};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Progress};
use crate::error::{WalkError, WalkOperation};
use crate::walk::{Descent, VisitedEntry, Visitor, Walk};

/// Files with several names of which not all were met yet: some 10 MiB. Beyond that a name counts as
/// its share of the file.
const MAX_LINKED: usize = 1 << 18;

/// Allocated bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Bytes in allocated blocks.
    pub bytes: u64,
    /// Files, directories and everything else that has an inode.
    pub inodes: u64,
}

impl DiskUsage {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// Measures what a walk visits. Files with several names count once, as upstream's `GetDirUsage`.
#[derive(Debug, Default)]
pub struct Measurement {
    usage: DiskUsage,
    /// The names of a file that are still to come.
    linked: HashMap<(u64, u64), u64>,
    /// The share of files beyond [`MAX_LINKED`].
    shares: Shares,
    mounts: u64,
    unreadable: u64,
}

#[derive(Debug, Default)]
struct Shares {
    bytes: u64,
    /// In millionths.
    inodes: u64,
}

/// A measured directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What was found until the end or the pause.
    pub usage: DiskUsage,
    /// Mount points, which do not count.
    pub mounts: u64,
    /// Entries that could not be read.
    pub unreadable: u64,
    /// Whether that is everything.
    pub progress: Progress,
}

impl Measurement {
    /// Adds an entry that the walk does not visit, such as its root.
    pub fn count(&mut self, stat: &Stat) {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        let bytes = blocks.saturating_mul(512);
        let one = DiskUsage { bytes, inodes: 1 };
        // 32 bits on aarch64.
        #[allow(clippy::useless_conversion)]
        let names = u64::from(stat.st_nlink);
        if names < 2 || FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.usage = self.usage.plus(one);
        } else {
            self.count_name((stat.st_dev, stat.st_ino), names, one);
        }
    }

    /// Counts one of several names of a file.
    fn count_name(&mut self, inode: (u64, u64), names: u64, one: DiskUsage) {
        let is_full = self.linked.len() >= MAX_LINKED;
        match self.linked.entry(inode) {
            MapEntry::Occupied(mut left) => {
                *left.get_mut() -= 1;
                if *left.get() == 0 {
                    left.remove();
                }
            }
            MapEntry::Vacant(_) if is_full => {
                self.shares.bytes = self.shares.bytes.saturating_add(one.bytes / names);
                self.shares.inodes = self.shares.inodes.saturating_add(1_000_000 / names);
            }
            MapEntry::Vacant(left) => {
                left.insert(names - 1);
                self.usage = self.usage.plus(one);
            }
        }
    }

    /// The usage until now.
    pub fn usage(&self) -> DiskUsage {
        self.usage.plus(DiskUsage {
            bytes: self.shares.bytes,
            inodes: self.shares.inodes.div_ceil(1_000_000),
        })
    }

    /// The result of a walk that got so far.
    pub fn measured(&self, progress: Progress) -> Measured {
        Measured {
            usage: self.usage(),
            mounts: self.mounts,
            unreadable: self.unreadable,
            progress,
        }
    }
}

impl Visitor for Measurement {
    fn enter(&mut self, dir: &VisitedEntry<'_>) -> io::Result<Descent> {
        self.count(dir.stat());
        Ok(Descent::Enter)
    }

    fn visit(&mut self, entry: &VisitedEntry<'_>) -> io::Result<()> {
        self.count(entry.stat());
        Ok(())
    }

    fn skip_mount(&mut self, _name: &CStr) {
        self.mounts += 1;
    }

    fn skip_failed(&mut self, _error: WalkError) -> Result<(), WalkError> {
        self.unreadable += 1;
        Ok(())
    }
}

/// Measures a directory and everything below it on its mount.
///
/// # Errors
/// Fails if the directory itself cannot be read.
pub fn measure(root: impl AsFd, budget: &mut Budget) -> Result<Measured, WalkError> {
    let root = root.as_fd();
    let stat = fstat(root).map_err(|errno| WalkError::new(WalkOperation::Stat, c".", errno))?;
    let mut measurement = Measurement::default();
    measurement.count(&stat);
    let progress = Walk::new(root)?.run(budget, &mut measurement)?;
    Ok(measurement.measured(progress))
}
