//! Errors of a walk, with the name of the entry; its path may be longer than any path may be.

use std::ffi::{CStr, CString};
use std::fmt;
use std::io;

use rustix::io::Errno;

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkOperation {
    /// Opening an entry.
    Open,
    /// Reading the status of an entry.
    Stat,
    /// Reading the names in a directory.
    Read,
    /// Returning to the directory above.
    Ascend,
    /// Removing an entry.
    Remove,
    /// Moving a deep directory to the top of its tree.
    Move,
    /// What the visitor does with an entry.
    Visit,
}

/// A failed operation on one entry.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", name.to_string_lossy())]
pub struct WalkError {
    /// What failed.
    pub operation: WalkOperation,
    /// The last component of the entry's path.
    pub name: CString,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl WalkError {
    pub(crate) fn new(operation: WalkOperation, name: &CStr, source: impl Into<io::Error>) -> Self {
        Self {
            operation,
            name: name.to_owned(),
            source: source.into(),
        }
    }

    /// Whether the entry is a mount point, which is neither entered nor removed.
    pub fn is_mount(&self) -> bool {
        match self.operation {
            WalkOperation::Open => self.is(Errno::XDEV),
            WalkOperation::Remove => self.is(Errno::BUSY),
            _ => false,
        }
    }

    /// Whether the entry was deleted meanwhile.
    pub(crate) fn is_gone(&self) -> bool {
        self.is(Errno::NOENT)
    }

    fn is(&self, errno: Errno) -> bool {
        self.source.raw_os_error() == Some(errno.raw_os_error())
    }
}

impl fmt::Display for WalkOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "opening",
            Self::Stat => "reading the status of",
            Self::Read => "listing",
            Self::Ascend => "returning to the directory above",
            Self::Remove => "removing",
            Self::Move => "moving",
            Self::Visit => "visiting",
        })
    }
}
