//! The listening sockets of all services.

use std::fs::{DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{listener, lock};

use super::process;
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
    #[error("creating the directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
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

/// The listening socket of a service.
#[derive(Debug)]
pub(super) struct ServiceSocket {
    pub(super) listener: UnixListener,
    /// The dying process that holds the service's lock.
    pub(super) locked: Option<String>,
}

/// Opens the listening socket of every service, in the order of [`SERVICES`]. All are open before the first
/// service starts, so that no call is refused. A stale socket is replaced once the lock of the service
/// shows that no process serves it, or that the one which holds the lock has been killed: that one may
/// wait for a dead disk for ever, and the other services do not wait with it. The service itself starts
/// when the lock is released.
pub(super) fn open(directory: &Path) -> Result<Vec<ServiceSocket>, SocketsError> {
    open_within(directory, LOCK_TIMEOUT)
}

/// The same with another time for the services of a killed supervisor.
fn open_within(directory: &Path, timeout: Duration) -> Result<Vec<ServiceSocket>, SocketsError> {
    let mut sockets = Vec::with_capacity(SERVICES.len());
    for service in &SERVICES {
        let lock = lock::path(directory, service.name);
        // The service makes it; at its first start it is not there yet.
        if let Some(own) = lock.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(own);
            made.map_err(|source| SocketsError::Directory {
                path: own.to_owned(),
                source,
            })?;
        }
        let locked = match lock::Lock::acquire(&lock, timeout) {
            Ok(lock) => {
                drop(lock);
                None
            }
            Err(lock::LockError::Locked {
                holder: Some(pid), ..
            }) if process::is_dying(pid) => {
                let holder = process::describe_unkillable(pid);
                tracing::error!(
                    service = service.name,
                    holder,
                    "service is locked by a killed process; starting the others"
                );
                Some(holder)
            }
            Err(error) => return Err(SocketsError::Running(error)),
        };
        let socket = directory.join(format!("{}.sock", service.name));
        let listener = listener::bind(&socket)?;
        sockets.push(ServiceSocket { listener, locked });
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_with_a_lock_does_not_hold_up_the_other_services() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock::path(dir.path(), "pleg");
        std::fs::create_dir(lock.parent().unwrap()).unwrap();
        let held = lock::Lock::acquire(&lock, Duration::ZERO).unwrap();
        let refused = open_within(dir.path(), Duration::from_millis(20)).unwrap_err();
        assert!(matches!(refused, SocketsError::Running(_)), "{refused}");

        // A zombie stands for a process that was killed and has not ended.
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        std::fs::write(&lock, zombie.id().to_string()).unwrap();
        while !process::is_dying(zombie.id()) {
            std::thread::yield_now();
        }
        let sockets = open_within(dir.path(), Duration::from_millis(20)).unwrap();
        let locked: Vec<bool> = sockets.iter().map(|one| one.locked.is_some()).collect();
        let pleg = |at: usize| SERVICES[at].name == "pleg";
        assert!(
            locked
                .iter()
                .enumerate()
                .all(|(at, locked)| *locked == pleg(at))
        );
        zombie.wait().unwrap();
        drop(held);
        drop(sockets);
        assert!(
            open_within(dir.path(), Duration::from_millis(20))
                .unwrap()
                .iter()
                .all(|one| one.locked.is_none())
        );
    }

    #[test]
    fn descriptor_three_is_reserved() {
        let reserved = reserve().unwrap();
        let next = File::open("/dev/null").unwrap();
        assert!(next.as_raw_fd() > LISTEN_FDS_START);
        drop(reserved);
    }
}
