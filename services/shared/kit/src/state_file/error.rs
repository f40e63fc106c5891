//! Errors of state files.

use std::path::PathBuf;

/// What can go wrong with a state file.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The data cannot be written as JSON.
    #[error("encoding {path}")]
    Encode {
        /// The state file.
        path: PathBuf,
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The file cannot be written.
    #[error("writing {path}")]
    Write {
        /// The state file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file exists and cannot be read.
    #[error("reading {path}")]
    Read {
        /// The state file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what was written.
    #[error("{path} is corrupt")]
    Corrupt {
        /// The state file.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// Written by an older build, in a format that this one does not know.
    #[error("{path} has version {found}, this build reads version {known}")]
    Version {
        /// The state file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version of this build.
        known: u32,
    },
    /// Written by a newer build. Its content is still valid there.
    #[error(
        "{path} was written by a newer build (version {found}, this build reads version {known}); \
         start that build again, or remove the file to lose what it holds"
    )]
    NewerVersion {
        /// The state file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version of this build.
        known: u32,
    },
    /// A corrupt file cannot be renamed.
    #[error("setting {path} aside")]
    SetAside {
        /// The state file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be removed.
    #[error("removing {path}")]
    Remove {
        /// The state file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A directory of state files cannot be made or listed.
    #[error("opening the directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A key of a [`StateDir`](crate::state_dir::StateDir) cannot be a file name.
    #[error("{key:?} cannot be the name of a file in {path}")]
    Key {
        /// The directory.
        path: PathBuf,
        /// The key.
        key: String,
    },
}

impl StateFileError {
    /// Whether the content can never be decoded by any build from now on.
    pub(super) fn is_undecodable(&self) -> bool {
        use StateFileError::{Corrupt, Version};
        matches!(self, Corrupt { .. } | Version { .. })
    }

    /// Whether a later attempt to read may succeed: too many open files, a disk that recovers.
    pub(super) fn is_transient(&self) -> bool {
        use StateFileError::{Directory, Read};
        matches!(self, Read { .. } | Directory { .. })
    }
}
