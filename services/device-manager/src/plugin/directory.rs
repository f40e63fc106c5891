//! The directory in which plugins register.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use polylet_kit::Ctx;
use polylet_kit::listener::ListenError;
use thiserror::Error;

/// The name of the socket at which plugins register.
pub(crate) const REGISTRATION_SOCKET: &str = "kubelet.sock";

/// Why plugins cannot register.
#[derive(Debug, Error)]
pub(crate) enum PluginDirectoryError {
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

/// Listens for registrations in the directory. If no former process did, sockets in it are removed,
/// as upstream does: their plugins see by that that they have to register again. Those in `known` stay,
/// since this process connects to them by itself.
///
/// # Errors
/// Plugins cannot register.
pub(crate) fn listen(
    ctx: &Ctx,
    directory: &Path,
    known: &BTreeSet<PathBuf>,
) -> Result<UnixListener, PluginDirectoryError> {
    let registration = directory.join(REGISTRATION_SOCKET);
    if let Some(inherited) = ctx.inherited_unix(REGISTRATION_SOCKET, &registration) {
        return Ok(inherited);
    }
    let mut builder = DirBuilder::new();
    let created = builder.recursive(true).mode(0o750).create(directory);
    created.map_err(|source| PluginDirectoryError::Create {
        path: directory.to_owned(),
        source,
    })?;
    remove_sockets(directory, known)?;
    Ok(ctx.bind_unix(REGISTRATION_SOCKET, &registration)?)
}

fn remove_sockets(directory: &Path, known: &BTreeSet<PathBuf>) -> Result<(), PluginDirectoryError> {
    let entries = fs::read_dir(directory).map_err(|source| PluginDirectoryError::Read {
        path: directory.to_owned(),
        source,
    })?;
    for entry in entries.flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|file| file.is_socket());
        // That of registrations is replaced.
        let is_own = path
            .file_name()
            .is_some_and(|name| name == REGISTRATION_SOCKET);
        if !is_socket || is_own || known.contains(&path) {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            let path = path.display();
            tracing::warn!(%path, %error, "failed to remove the socket of a device plugin");
        }
    }
    Ok(())
}
