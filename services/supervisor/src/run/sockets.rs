//! The listening sockets of all services.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use polylet_kit::{listener, lock};

use crate::core::order::SERVICES;

/// The first inherited descriptor (`SD_LISTEN_FDS_START`).
pub(super) const LISTEN_FDS_START: i32 = 3;

/// How long the services of a killed supervisor may take to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the sockets cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketsError {
    #[error("reserving descriptor {LISTEN_FDS_START}")]
    Reserve(#[from] std::io::Error),
    #[error("a service is running without a supervisor")]
    Running(#[source] lock::LockError),
    #[error(transparent)]
    Listen(#[from] listener::ListenError),
}

/// Reserves descriptor 3 in this process. Between fork and exec it is replaced by the service's socket,
/// which would overwrite any descriptor of ours, such as the pipe that reports a failed exec.
pub(super) fn reserve() -> std::io::Result<Vec<File>> {
    let mut reserved = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let number = file.as_raw_fd();
        if number <= LISTEN_FDS_START {
            reserved.push(file);
        }
        if number >= LISTEN_FDS_START {
            return Ok(reserved);
        }
    }
}

/// Opens the listening socket of every service, in the order of [`SERVICES`]. All are open before the first
/// service starts, so that no call is refused. A stale socket is replaced once the lock of the service
/// shows that no process serves it.
pub(super) fn open(directory: &Path) -> Result<Vec<UnixListener>, SocketsError> {
    let mut sockets = Vec::with_capacity(SERVICES.len());
    for service in &SERVICES {
        let lock = directory.join(format!("{}.lock", service.name));
        drop(lock::Lock::acquire(&lock, LOCK_TIMEOUT).map_err(SocketsError::Running)?);
        sockets.push(listener::bind(
            &directory.join(format!("{}.sock", service.name)),
        )?);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_three_is_reserved() {
        let reserved = reserve().unwrap();
        let next = File::open("/dev/null").unwrap();
        assert!(next.as_raw_fd() > LISTEN_FDS_START);
        drop(reserved);
    }
}
