//! The service's listening socket: inherited, so that it outlives the process, or bound here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Why there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// What was handed down is not a listening Unix socket.
    #[error("the inherited descriptor is not a listening Unix socket")]
    Inherited(#[source] std::io::Error),
    /// The socket cannot be made.
    #[error("listening on {path}")]
    Bind {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// The socket handed down through `LISTEN_FDS`, or a new one at `path`. A missing `LISTEN_PID` is
/// accepted: whoever starts a child cannot know its process id before it exists.
pub fn inherit_or_bind(path: &Path) -> Result<UnixListener, ListenError> {
    let inherited = listenfd::ListenFd::from_env()
        .take_unix_listener(0)
        .map_err(ListenError::Inherited)?;
    match inherited {
        Some(listener) => Ok(listener),
        None => bind(path),
    }
}

/// Binds `path`, readable by the owner alone, in place of whatever was there. The caller holds the
/// lock that makes a socket found there a stale one.
pub fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Bind {
        path: path.to_owned(),
        source,
    };
    // Bound aside and renamed: nobody can connect before the mode is right, and a connect during
    // the change meets either the old socket or the new one.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&aside).map_err(failed)?;
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    fs::rename(&aside, path).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_stale_socket_is_replaced_and_closed_to_others() {
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
