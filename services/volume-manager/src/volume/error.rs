use std::io;
use std::path::PathBuf;

use polylet_kit::rpc_status::go_name;
use polylet_kit::subprocess::SubprocessError;
use thiserror::Error;

/// A CSI call that failed.
#[derive(Debug, Error)]
#[error("{call}rpc error: code = {} desc = {message}", go_name(*.code))]
pub struct CsiError {
    /// The prefix of the message: upstream's name of the call, or empty.
    pub call: &'static str,
    /// The gRPC code.
    pub code: tonic::Code,
    /// The driver's message.
    pub message: String,
}

/// Why an operation on a volume failed. Never shows the content of files.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// A directory cannot be created.
    #[error("making directory {path}")]
    MakeDir {
        /// The path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// A file or directory cannot be opened.
    #[error("opening {path}")]
    Open {
        /// The path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// Mode or owner cannot be set.
    #[error("setting mode and owner of {path}")]
    SetOwner {
        /// The path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// A mount failed.
    #[error("mounting {kind} at {path}")]
    Mount {
        /// The file system or kind of mount.
        kind: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// Another file system is mounted on the volume's directory.
    #[error("a file system that is not the volume's is mounted at {0}")]
    ForeignMount(PathBuf),
    /// An unmount failed.
    #[error("unmounting {path}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The mount table cannot be read.
    #[error("reading the mount table")]
    MountTable(#[source] io::Error),
    /// A file cannot be written.
    #[error("writing {path}")]
    Write {
        /// The path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The metadata file of a pod cannot be stored.
    #[error("storing pod metadata")]
    Metadata(#[source] polylet_kit::state_file::StateFileError),
    /// A file or directory cannot be removed.
    #[error("removing {path}")]
    Remove {
        /// The path.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// A hostPath fails its type check.
    #[error("{0}")]
    HostPath(String),
    /// A large tree is not deleted completely yet.
    #[error("{}", super::delete::DeleteError::Unfinished)]
    DeletionUnfinished(PathBuf),
    /// A task has no result: its child process missed its deadline, or failed.
    #[error(transparent)]
    Subprocess(#[from] SubprocessError),
    /// A task in a child process failed.
    #[error("{0}")]
    Task(String),
    /// A CSI call failed.
    #[error(transparent)]
    Csi(#[from] CsiError),
    /// A driver does not expand a volume that is in use.
    #[error(transparent)]
    InUse(CsiError),
    /// The volume's driver is not registered.
    #[error("driver name {0} not found in the list of registered CSI drivers")]
    DriverNotRegistered(String),
    /// The data file of a CSI volume is not JSON of its kind.
    #[error("{path} is not the data of a CSI volume")]
    VolumeData {
        /// The path.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The data file of a CSI volume does not name driver and volume.
    #[error("{0} names no driver and volume")]
    IncompleteVolumeData(PathBuf),
    /// It is not known which driver a CSI volume is of.
    #[error("the driver of the volume at {path} is not known")]
    UnknownDriver {
        /// The directory of the volume.
        path: PathBuf,
        /// Why its data file cannot be used.
        #[source]
        source: Box<VolumeError>,
    },
    /// A local volume is missing or cannot be mounted.
    #[error("{0}")]
    Local(String),
    /// A disk with another file system than specified cannot be mounted.
    #[error("{0}")]
    FilesystemMismatch(String),
    /// A step failed that upstream names in its messages.
    #[error("{}", polylet_kit::report(.error))]
    InStep {
        /// Upstream's name of the step.
        step: &'static str,
        /// The error.
        error: Box<VolumeError>,
    },
    /// The path is not a block device.
    #[error("{0}")]
    NotABlockDevice(String),
    /// A blocking thread panicked.
    #[error("the work on {0} was aborted")]
    Aborted(PathBuf),
    /// Interrupted by a test that simulates a crash.
    #[error("interrupted")]
    Interrupted,
}

impl VolumeError {
    /// Names the failed step.
    #[must_use]
    pub fn in_step(self, step: &'static str) -> Self {
        let error = Box::new(self);
        Self::InStep { step, error }
    }

    /// Whether everything is done except the expansion, which is not possible while in use.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            Self::InStep { error, .. } => error.is_in_use(),
            _ => false,
        }
    }

    /// Whether a file system or a driver did not answer in time.
    pub fn is_not_responding(&self) -> bool {
        match self {
            Self::Subprocess(error) => matches!(
                error,
                SubprocessError::Deadline(_) | SubprocessError::StillRunning
            ),
            Self::Csi(error) => error.code == tonic::Code::DeadlineExceeded,
            Self::InStep { error, .. } => error.is_not_responding(),
            _ => false,
        }
    }

    /// The message for a disk that has another file system than specified.
    pub fn filesystem_mismatch(&self) -> Option<&str> {
        match self {
            Self::FilesystemMismatch(message) => Some(message),
            Self::InStep { error, .. } => error.filesystem_mismatch(),
            _ => None,
        }
    }

    /// Upstream's name of the failed step, unless it is setting up as a whole.
    pub fn step(&self) -> Option<&'static str> {
        match self {
            Self::InStep { step, .. } => Some(step),
            _ => None,
        }
    }
}
