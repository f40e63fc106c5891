//! Eviction signals and their observed values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// Free space of the file system of containers' writable layers.
    ContainerFsAvailable,
    /// Free inodes of the file system of containers' writable layers.
    ContainerFsInodesFree,
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
    /// Parses a key of `evictionHard`: all signals that the configuration accepts.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "memory.available" => Self::MemoryAvailable,
            "allocatableMemory.available" => Self::AllocatableMemoryAvailable,
            "nodefs.available" => Self::NodeFsAvailable,
            "nodefs.inodesFree" => Self::NodeFsInodesFree,
            "imagefs.available" => Self::ImageFsAvailable,
            "imagefs.inodesFree" => Self::ImageFsInodesFree,
            "containerfs.available" => Self::ContainerFsAvailable,
            "containerfs.inodesFree" => Self::ContainerFsInodesFree,
            "pid.available" => Self::PidAvailable,
            _ => return None,
        })
    }

    /// The key of `evictionHard`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// Whether the signal is about the file system of writable layers.
    pub(crate) fn is_container_fs(self) -> bool {
        matches!(
            self,
            Self::ContainerFsAvailable | Self::ContainerFsInodesFree
        )
    }

    pub(crate) fn resource(self) -> EvictionResource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => EvictionResource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                EvictionResource::Disk
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                EvictionResource::Inodes
            }
            Self::PidAvailable => EvictionResource::Pids,
        }
    }

    /// Whether logs and local volumes are on the signal's file system.
    pub(crate) fn counts_local_files(self, one_filesystem: bool) -> bool {
        one_filesystem || self.is_node_fs()
    }

    /// Whether writable layers are on the signal's file system.
    pub(crate) fn counts_layers(self, one_filesystem: bool) -> bool {
        one_filesystem || !self.is_node_fs()
    }

    fn is_node_fs(self) -> bool {
        matches!(self, Self::NodeFsAvailable | Self::NodeFsInodesFree)
    }

    /// Whether removing dead containers and unused images can help. With one file system for images
    /// and pods, it also helps `nodefs`.
    pub(crate) fn is_reclaimable(self, one_filesystem: bool) -> bool {
        match self {
            Self::ImageFsAvailable
            | Self::ImageFsInodesFree
            | Self::ContainerFsAvailable
            | Self::ContainerFsInodesFree => true,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The free amount.
    pub available: u64,
    /// The total amount.
    pub capacity: u64,
}

/// The signals of one sync iteration. One that is neither observed nor failed does not exist on this
/// node, such as the inodes of a file system without a limit on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    observed: BTreeMap<Signal, Observation>,
    failed: BTreeSet<Signal>,
}

impl Observations {
    /// The observation of a signal.
    pub fn get(&self, signal: Signal) -> Option<Observation> {
        self.observed.get(&signal).copied()
    }

    /// Adds an observation.
    pub fn insert(&mut self, signal: Signal, observation: Observation) {
        self.failed.remove(&signal);
        self.observed.insert(signal, observation);
    }

    /// Records that a signal could not be observed: what it was before stays in effect.
    pub fn fail(&mut self, signal: Signal) {
        self.observed.remove(&signal);
        self.failed.insert(signal);
    }

    /// Whether the signal could not be observed.
    pub fn is_failed(&self, signal: Signal) -> bool {
        self.failed.contains(&signal)
    }
}

impl<const N: usize> From<[(Signal, Observation); N]> for Observations {
    fn from(observed: [(Signal, Observation); N]) -> Self {
        Self {
            observed: observed.into(),
            failed: BTreeSet::new(),
        }
    }
}
