use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// What can go wrong with a volume's files. Never holds a content.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// A directory cannot be made.
    #[error("making directory {path}")]
    MakeDir {
        /// It.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something cannot be opened or looked at.
    #[error("opening {path}")]
    Open {
        /// It.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Mode or owner cannot be set.
    #[error("setting mode and owner of {path}")]
    Own {
        /// It.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file system cannot be mounted.
    #[error("mounting {kind} at {path}")]
    Mount {
        /// Its type.
        kind: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something else is mounted where the volume should be.
    #[error("a file system that is not the volume's is mounted at {0}")]
    Occupied(PathBuf),
    /// A mount cannot be undone.
    #[error("unmounting {path}")]
    Unmount {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The mount table cannot be read.
    #[error("reading the mount table")]
    MountTable(#[source] io::Error),
    /// A file cannot be written.
    #[error("writing {path}")]
    Write {
        /// It.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something cannot be removed.
    #[error("removing {path}")]
    Remove {
        /// It.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A hostPath is not what it should be.
    #[error("{0}")]
    HostPath(String),
    /// Work in a child process failed, or took too long.
    #[error(transparent)]
    Job(#[from] crate::job::JobError),
    /// A driver cannot do what it was asked for.
    #[error(transparent)]
    Csi(#[from] crate::csi::client::CsiError),
    /// A driver does not make a volume larger that is in use.
    #[error(transparent)]
    InUse(crate::csi::client::CsiError),
    /// The volume's driver is not there.
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    NoDriver(String),
    /// A local volume is not there, or cannot be mounted.
    #[error("{0}")]
    Local(String),
    /// A disk with another file system than was asked for cannot be mounted.
    #[error("{0}")]
    Mismatch(String),
    /// Something failed on the way, which people are told in upstream's word for it.
    #[error("{}", polylet_kit::report(.error))]
    During {
        /// That word.
        doing: &'static str,
        /// What failed.
        error: Box<VolumeError>,
    },
    /// What should be a block device is none.
    #[error("{0}")]
    NoDevice(String),
    /// A block device cannot be kept open by a loop device, or let go.
    #[error("a loop device over {path}")]
    Loop {
        /// What it is over.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A thread ended without an answer.
    #[error("the work on {0} was broken off")]
    BrokenOff(PathBuf),
    /// The test that plays a crash has ended the writer here.
    #[error("stopped")]
    Stopped,
}

impl VolumeError {
    /// The same, told as a failure of this.
    #[must_use]
    pub fn during(self, doing: &'static str) -> Self {
        let error = Box::new(self);
        Self::During { doing, error }
    }

    /// Whether all was done but making it larger, which will not be done while it is in use.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            Self::During { error, .. } => error.is_in_use(),
            _ => false,
        }
    }

    /// What people are told of a disk that has another file system than was asked for.
    pub fn mismatch(&self) -> Option<&str> {
        match self {
            Self::Mismatch(why) => Some(why),
            Self::During { error, .. } => error.mismatch(),
            _ => None,
        }
    }

    /// What it was that failed, in upstream's words, where that is more than setting up.
    pub fn doing(&self) -> Option<&'static str> {
        match self {
            Self::During { doing, .. } => Some(doing),
            _ => None,
        }
    }
}
