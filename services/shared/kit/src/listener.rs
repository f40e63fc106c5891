//! The service's listening socket: inherited, so that it outlives the process, or bound by it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The inherited descriptor is not a listening Unix socket.
    #[error("the inherited descriptor is not a listening Unix socket")]
    Inherited(#[source] std::io::Error),
    /// The socket cannot be bound.
    #[error("listening on {path}")]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// The socket inherited through `LISTEN_FDS`, or a new one at `path`. A missing `LISTEN_PID` is
/// accepted: a parent cannot know the id of its child before it exists.
pub fn inherit_or_bind(path: &Path) -> Result<UnixListener, ListenError> {
    let inherited = listenfd::ListenFd::from_env()
        .take_unix_listener(0)
        .map_err(ListenError::Inherited)?;
    match inherited {
        Some(listener) => Ok(listener),
        None => bind(path),
    }
}

/// Binds `path`, accessible to the owner alone, replacing an existing socket: the caller holds the
/// service's lock, so that one is stale.
pub fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Bind {
        path: path.to_owned(),
        source,
    };
    // Bound at a temporary path and renamed: no connection is possible before the mode is set, and a
    // connect during the change reaches either the old socket or the new one.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary).map_err(failed)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_stale_socket_is_replaced_with_mode_0600() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        drop(bind(&path).unwrap());
        assert!(UnixStream::connect(&path).is_err());
        let _listener = bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
