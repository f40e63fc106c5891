//! The service's listening sockets: inherited, so that they outlive the process, or bound by it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;

use crate::ports::{InheritedPorts, UNIX_SUFFIX};

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
    /// The group of sockets is no number.
    #[error("{SOCKET_GROUP}={value:?} is no number of a group")]
    Group {
        /// The variable's value.
        value: String,
    },
}

/// The variable with the number of the group that may connect to sockets which this process binds itself:
/// where no service manager gives each socket a group, as between containers. Without it, the owner alone.
pub const SOCKET_GROUP: &str = "POLYLET_SOCKET_GROUP";

/// What is appended to a socket's path while it is bound.
const TEMPORARY: &str = ".new";

/// The sockets that a service manager passed on: the service's own first, then the ports and sockets that an
/// earlier process stored with it.
pub(crate) struct InheritedSockets {
    own: Option<UnixListener>,
    pub(crate) ports: InheritedPorts,
}

impl InheritedSockets {
    /// Those of `LISTEN_FDS`. A missing `LISTEN_PID` is accepted: a parent cannot know the id of its child
    /// before it exists. Reads the environment once: a second call finds none.
    ///
    /// # Errors
    /// When the first one is no Unix socket.
    pub(crate) fn from_env() -> Result<Self, ListenError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut inherited = ListenFd::from_env();
        let own = inherited
            .take_unix_listener(0)
            .map_err(ListenError::Inherited)?;
        let (mut ports, mut sockets) = (Vec::new(), Vec::new());
        for (at, name) in names.split(':').enumerate().skip(1) {
            let taken = if name.ends_with(UNIX_SUFFIX) {
                let taken = inherited.take_unix_listener(at);
                taken.map(|listener| {
                    sockets.extend(listener.map(|socket| (name.to_owned(), socket)))
                })
            } else {
                let taken = inherited.take_tcp_listener(at);
                taken.map(|listener| ports.extend(listener.map(|port| (name.to_owned(), port))))
            };
            if let Err(error) = taken {
                tracing::warn!(name, %error, "ignoring an inherited descriptor");
            }
        }
        Ok(Self {
            own,
            ports: InheritedPorts::new(ports, sockets),
        })
    }

    /// The service's own socket, or a new one at `path`.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub(crate) fn own_or_bind(&mut self, path: &Path) -> Result<UnixListener, ListenError> {
        match self.own.take() {
            Some(listener) => Ok(listener),
            None => bind(path),
        }
    }
}

/// The inherited socket, or a new one at `path`, of a process that has no ports.
///
/// # Errors
/// When the inherited descriptor is no Unix socket, or `path` cannot be bound.
pub fn inherit_or_bind(path: &Path) -> Result<UnixListener, ListenError> {
    InheritedSockets::from_env()?.own_or_bind(path)
}

/// Binds `path`, accessible to the owner, and to the group that the environment names ([`SOCKET_GROUP`]).
/// Replaces an existing socket: the caller holds the service's lock, so that one is stale.
///
/// # Errors
/// When the socket cannot be made, or the group is invalid.
pub fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    let group = std::env::var_os(SOCKET_GROUP).map(|value| {
        let value = value.to_string_lossy().into_owned();
        value.parse().map_err(|_| ListenError::Group { value })
    });
    bind_for(path, group.transpose()?)
}

/// The same for a group.
fn bind_for(path: &Path, group: Option<u32>) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError::Bind {
        path: path.to_owned(),
        source,
    };
    // Bound at a temporary path and renamed: no connection is possible before the mode is set, and a
    // connect during the change reaches either the old socket or the new one.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary).map_err(failed)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    if let Some(group) = group {
        std::os::unix::fs::chown(&temporary, None, Some(group)).map_err(failed)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o660)).map_err(failed)?;
    }
    fs::rename(&temporary, path).map_err(failed)?;
    Ok(listener)
}

/// The path of a listening socket. The kernel knows one of [`bind`] by its temporary path.
pub(crate) fn path(listener: &UnixListener) -> Option<PathBuf> {
    let address = listener.local_addr().ok()?;
    let bytes = address.as_pathname()?.as_os_str().as_bytes();
    let path = bytes.strip_suffix(TEMPORARY.as_bytes()).unwrap_or(bytes);
    Some(PathBuf::from(OsStr::from_bytes(path)))
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

    #[test]
    fn a_socket_opens_for_a_group_that_is_named() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("x.sock");
        // Others need the privilege to give a file away.
        let group = rustix::process::getegid().as_raw();
        let listener = bind_for(&at, Some(group)).unwrap();
        let file = fs::metadata(&at).unwrap();
        assert_eq!(
            (file.permissions().mode() & 0o777, file.gid()),
            (0o660, group)
        );
        assert_eq!(path(&listener), Some(at));
    }
}
