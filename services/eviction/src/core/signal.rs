//! Eviction signals and their observed values.

use std::collections::BTreeMap;
use std::fmt;

/// A signal that a threshold watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// The node's memory less its working set.
    MemoryAvailable,
    /// The same within the cgroup of all pods.
    AllocatableMemoryAvailable,
    /// Free space of the pods' file system.
    NodeFsAvailable,
    /// Free inodes of the pods' file system.
    NodeFsInodesFree,
    /// Free space of the image file system.
    ImageFsAvailable,
    /// Free inodes of the image file system.
    ImageFsInodesFree,
    /// Free process ids.
    PidAvailable,
}

/// The resource behind a signal. Displayed as in upstream's eviction message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionResource {
    Memory,
    Disk,
    Inodes,
    Pids,
}

impl Signal {
    /// Parses a key of `evictionHard`. Allocatable memory cannot be configured separately.
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

    pub(crate) fn resource(self) -> EvictionResource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => EvictionResource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable => EvictionResource::Disk,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => EvictionResource::Inodes,
            Self::PidAvailable => EvictionResource::Pids,
        }
    }

    /// Whether the signal is in bytes and not a count.
    pub(crate) fn is_bytes(self) -> bool {
        !matches!(
            self,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::PidAvailable
        )
    }

    /// Whether removing images can help. With one file system for images and pods, it also helps
    /// `nodefs`.
    pub(crate) fn is_reclaimable(self, one_filesystem: bool) -> bool {
        match self {
            Self::ImageFsAvailable | Self::ImageFsInodesFree => true,
            Self::NodeFsAvailable | Self::NodeFsInodesFree => one_filesystem,
            _ => false,
        }
    }
}

impl fmt::Display for EvictionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        })
    }
}

/// The observed value of a signal: bytes or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The free amount.
    pub available: u64,
    /// The total amount.
    pub capacity: u64,
}

/// Observed signals. A signal that could not be read is missing and meets no threshold.
pub type Observations = BTreeMap<Signal, Observation>;
