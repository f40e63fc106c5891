//! The signals that thresholds watch, and what was observed of them.

use std::collections::BTreeMap;
use std::fmt;

/// What a threshold watches. Names are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Node memory less its working set.
    MemoryAvailable,
    /// The same within the pods' own cgroup.
    AllocatableMemoryAvailable,
    /// Room where pods live.
    NodeFsAvailable,
    /// Inodes there.
    NodeFsInodesFree,
    /// Room where images live.
    ImageFsAvailable,
    /// Inodes there.
    ImageFsInodesFree,
    /// Process ids.
    PidAvailable,
}

/// What a pod is short of, as the message names it, and which node condition follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Starved {
    Memory,
    Disk,
    Inodes,
    Pids,
}

impl Signal {
    /// Upstream's spelling in `evictionHard`. Allocatable memory cannot be configured by itself.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "memory.available" => Self::MemoryAvailable,
            "nodefs.available" => Self::NodeFsAvailable,
            "nodefs.inodesFree" => Self::NodeFsInodesFree,
            "imagefs.available" => Self::ImageFsAvailable,
            "imagefs.inodesFree" => Self::ImageFsInodesFree,
            "pid.available" => Self::PidAvailable,
            _ => return None,
        })
    }

    pub(crate) fn starved(self) -> Starved {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Starved::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable => Starved::Disk,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => Starved::Inodes,
            Self::PidAvailable => Starved::Pids,
        }
    }

    /// Whether quantities of this signal are bytes, rather than a count.
    pub(crate) fn is_bytes(self) -> bool {
        !matches!(
            self,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::PidAvailable
        )
    }

    /// Whether removing images or dead containers can help. With one file system for both, it helps
    /// `nodefs` as well.
    pub(crate) fn reclaimable(self, one_filesystem: bool) -> bool {
        match self {
            Self::ImageFsAvailable | Self::ImageFsInodesFree => true,
            Self::NodeFsAvailable | Self::NodeFsInodesFree => one_filesystem,
            _ => false,
        }
    }
}

impl fmt::Display for Starved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// How much of a signal's resource there is: bytes or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Of it is free.
    pub available: u64,
    /// There is in all.
    pub capacity: u64,
}

/// One sample of the node. A signal that could not be read is missing and meets no threshold.
pub type Levels = BTreeMap<Signal, Level>;
