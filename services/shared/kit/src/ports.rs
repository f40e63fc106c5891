//! Listening sockets besides the service's own that outlive the process: the service manager holds them while
//! the service restarts, so that connections wait in the backlog instead of being refused (`FDSTORE` in
//! `sd_notify(3)`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sd_notify::NotifyState;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait at most: all that arrive while the service restarts.
const BACKLOG: u32 = 4096;

/// What the names of stored Unix sockets end with; those of ports do not.
pub(crate) const UNIX_SUFFIX: &str = ".sock";

/// Why a port cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("listening on {address}")]
pub struct PortError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// The sockets from earlier processes of the service, by name.
#[derive(Debug, Default)]
pub(crate) struct InheritedPorts {
    by_name: Mutex<HashMap<String, std::net::TcpListener>>,
    unix_by_name: Mutex<HashMap<String, UnixListener>>,
}

impl InheritedPorts {
    pub(crate) fn new(
        inherited: impl IntoIterator<Item = (String, std::net::TcpListener)>,
        unix: impl IntoIterator<Item = (String, UnixListener)>,
    ) -> Self {
        Self {
            by_name: Mutex::new(inherited.into_iter().collect()),
            unix_by_name: Mutex::new(unix.into_iter().collect()),
        }
    }

    /// The inherited Unix socket of this name, if it is still the one at `path`.
    pub(crate) fn inherited_unix(&self, name: &str, path: &Path) -> Option<UnixListener> {
        let inherited = self
            .unix_by_name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name)?;
        let address = inherited.local_addr().ok()?;
        // Bound at a temporary path and renamed: the directory of both is the same.
        let directory = address.as_pathname().and_then(Path::parent);
        (directory == path.parent() && path.exists()).then_some(inherited)
    }

    /// Stores a new Unix socket, which replaces that of this name at the service manager.
    pub(crate) fn store_unix(&self, name: &'static str, listener: &UnixListener) {
        notify(
            &[NotifyState::FdStoreRemove, NotifyState::FdName(name)],
            None::<&UnixListener>,
        );
        let state = [NotifyState::FdStore, NotifyState::FdName(name)];
        notify(&state, Some(listener));
    }

    /// The inherited socket of this name if it has this address, and a new one otherwise, which replaces
    /// it at the service manager. Needs the tokio runtime.
    pub(crate) fn bind(
        &self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<TcpListener, PortError> {
        let inherited = self
            .by_name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        let failed = |source| PortError { address, source };
        if let Some(listener) = inherited {
            if listener.local_addr().ok() == Some(address) {
                listener.set_nonblocking(true).map_err(failed)?;
                return TcpListener::from_std(listener).map_err(failed);
            }
            // The configuration has changed. Closed before the bind: the addresses may overlap.
            drop(listener);
            notify(
                &[NotifyState::FdStoreRemove, NotifyState::FdName(name)],
                None::<&TcpListener>,
            );
        }
        let listener = listen(address).map_err(failed)?;
        let state = [NotifyState::FdStore, NotifyState::FdName(name)];
        notify(&state, Some(&listener));
        Ok(listener)
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Connections of an earlier process may be in the state TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Without a service manager, or with one that holds no descriptors, the socket closes with the process.
fn notify(state: &[NotifyState<'_>], listener: Option<&impl AsFd>) {
    let descriptors: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
    if let Err(error) = sd_notify::notify_with_fds(state, &descriptors) {
        tracing::debug!(%error, "failed to notify the service manager of a socket");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> std::net::TcpListener {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap()
    }

    #[tokio::test]
    async fn a_port_of_the_same_address_is_inherited() {
        let listener = any();
        let address = listener.local_addr().unwrap();
        let ports = InheritedPorts::new([("https".to_owned(), listener)], []);
        let bound = ports.bind("https", address).unwrap();
        assert_eq!(bound.local_addr().unwrap(), address);
        // A second socket cannot have the address.
        assert!(ports.bind("https", address).is_err());
    }

    #[tokio::test]
    async fn a_port_of_another_address_is_closed() {
        let (listener, free) = (any(), any());
        let (old, new) = (listener.local_addr().unwrap(), free.local_addr().unwrap());
        drop(free);
        let ports = InheritedPorts::new([("https".to_owned(), listener)], []);
        let bound = ports.bind("https", new).unwrap();
        assert_eq!(bound.local_addr().unwrap(), new);
        assert!(std::net::TcpStream::connect(old).is_err());
    }

    #[test]
    fn a_unix_socket_is_inherited_while_its_file_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.sock");
        let inherit = |listener| {
            let sockets = InheritedPorts::new([], [("kubelet.sock".to_owned(), listener)]);
            sockets.inherited_unix("kubelet.sock", &path)
        };
        let inherited = inherit(UnixListener::bind(&path).unwrap()).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        inherited.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(inherit(inherited).is_none());
        let elsewhere = tempfile::tempdir().unwrap();
        let other = UnixListener::bind(elsewhere.path().join("kubelet.sock")).unwrap();
        let _present = UnixListener::bind(&path).unwrap();
        assert!(inherit(other).is_none());
    }
}
