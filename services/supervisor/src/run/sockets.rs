use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use polylet_kit::{listener, lock};

use crate::core::order::SERVICES;

/// The first descriptor that a service gets by the `LISTEN_FDS` convention.
pub(super) const FIRST: i32 = 3;

/// A killed predecessor's services are gone this soon.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why the sockets are not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketsError {
    #[error("reserving descriptor {FIRST}")]
    Reserve(#[from] std::io::Error),
    #[error("a service is running without a supervisor")]
    Running(#[source] lock::LockError),
    #[error(transparent)]
    Listen(#[from] listener::ListenError),
}

/// Keeps descriptor 3 taken in this process. In a child between fork and exec it becomes the
/// service's socket; anything of ours that lived there, such as the pipe that reports a failed
/// exec, would be overwritten.
pub(super) fn reserve() -> std::io::Result<Vec<File>> {
    let mut taken = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let number = file.as_raw_fd();
        if number <= FIRST {
            taken.push(file);
        }
        if number >= FIRST {
            return Ok(taken);
        }
    }
}

/// Every service's listening socket, in the order of [`SERVICES`]. All are there before the first
/// service starts, so nobody's call is refused; a stale one is replaced, after making sure by the
/// service's lock that nobody serves it.
pub(super) fn open(directory: &Path) -> Result<Vec<UnixListener>, SocketsError> {
    let mut sockets = Vec::with_capacity(SERVICES.len());
    for service in &SERVICES {
        let lock = directory.join(format!("{}.lock", service.name));
        drop(lock::Lock::take(&lock, PATIENCE).map_err(SocketsError::Running)?);
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
    fn descriptor_three_is_never_ours_to_get() {
        let taken = reserve().unwrap();
        let next = File::open("/dev/null").unwrap();
        assert!(next.as_raw_fd() > FIRST);
        drop(taken);
    }
}
