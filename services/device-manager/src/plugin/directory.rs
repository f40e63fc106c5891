//! The directory in which plugins register.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use polylet_kit::listener::{self, ListenError};
use thiserror::Error;

/// The name of the socket at which plugins register.
pub(crate) const REGISTRATION_SOCKET: &str = "kubelet.sock";

/// Why plugins cannot register.
#[derive(Debug, Error)]
pub(crate) enum DirectoryError {
    /// The directory cannot be created.
    #[error("creating {path}")]
    Create {
        /// The directory.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be read.
    #[error("reading {path}")]
    Read {
        /// The directory.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Prepares the directory and listens for registrations. As upstream, sockets in it are removed, by
/// which their plugins see that they have to register again; those in `known` stay, since this
/// process connects to them by itself.
///
/// # Errors
/// Plugins cannot register.
pub(crate) fn listen(
    directory: &Path,
    known: &BTreeSet<PathBuf>,
) -> Result<UnixListener, DirectoryError> {
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(0o750).create(directory);
    created.map_err(|source| DirectoryError::Create {
        path: directory.to_owned(),
        source,
    })?;
    let entries = fs::read_dir(directory).map_err(|source| DirectoryError::Read {
        path: directory.to_owned(),
        source,
    })?;
    let registration = directory.join(REGISTRATION_SOCKET);
    for entry in entries.flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|file| file.is_socket());
        if !is_socket || path == registration || known.contains(&path) {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to remove the socket of a device plugin");
        }
    }
    Ok(listener::bind(&registration)?)
}
