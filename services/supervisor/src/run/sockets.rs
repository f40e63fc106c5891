//! The listening sockets of all services.

use std::fs::{DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{listener, lock};

use super::process;
use super::stored_descriptors::MAX_STORED;
use crate::core::order::SERVICES;
use crate::handover::{Handover, descriptors};

/// The first inherited descriptor (`SD_LISTEN_FDS_START`).
pub(super) const LISTEN_FDS_START: i32 = 3;
/// The last one: the service's socket and its stored descriptors.
const LISTEN_FDS_END: i32 = LISTEN_FDS_START + MAX_STORED as i32;

/// How long the services of a killed supervisor may take to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the sockets cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketsError {
    #[error("reserving descriptors {LISTEN_FDS_START} to {LISTEN_FDS_END}")]
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

/// Reserves the numbers of inherited descriptors in this process. Between fork and exec they are replaced by
/// the service's sockets, which would overwrite any descriptor of ours, such as the pipe that reports a
/// failed exec.
pub(super) fn reserve() -> std::io::Result<Vec<File>> {
    let mut reserved = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let number = file.as_raw_fd();
        if number <= LISTEN_FDS_END {
            reserved.push(file);
        }
        if number >= LISTEN_FDS_END {
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
///
/// The sockets of a handover are used as they are.
pub(super) fn open(
    directory: &Path,
    handover: Option<&Handover>,
) -> Result<Vec<ServiceSocket>, SocketsError> {
    let mut sockets = Vec::with_capacity(SERVICES.len());
    for service in &SERVICES {
        let inherited = handover.and_then(|one| one.get(&descriptors::socket_of(service.name)));
        sockets.push(match inherited {
            Some(socket) => ServiceSocket {
                listener: socket.into(),
                locked: None,
            },
            None => open_one(directory, service.name, LOCK_TIMEOUT)?,
        });
    }
    Ok(sockets)
}

fn open_one(
    directory: &Path,
    service: &str,
    timeout: Duration,
) -> Result<ServiceSocket, SocketsError> {
    let lock = lock::path(directory, service);
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
                service,
                holder,
                "service is locked by a killed process; starting the others"
            );
            Some(holder)
        }
        Err(error) => return Err(SocketsError::Running(error)),
    };
    let listener = listener::bind(&directory.join(format!("{service}.sock")))?;
    Ok(ServiceSocket { listener, locked })
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
        let open = |service| open_one(dir.path(), service, Duration::from_millis(20));
        let refused = open("pleg").unwrap_err();
        assert!(matches!(refused, SocketsError::Running(_)), "{refused}");

        // A zombie stands for a process that was killed and has not ended.
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        std::fs::write(&lock, zombie.id().to_string()).unwrap();
        while !process::is_dying(zombie.id()) {
            std::thread::yield_now();
        }
        for service in SERVICES {
            let socket = open(service.name).unwrap();
            assert_eq!(socket.locked.is_some(), service.name == "pleg");
        }
        zombie.wait().unwrap();
        drop(held);
        assert!(open("pleg").unwrap().locked.is_none());
    }

    #[test]
    fn numbers_of_inherited_descriptors_are_reserved() {
        let reserved = reserve().unwrap();
        let next = File::open("/dev/null").unwrap();
        assert!(next.as_raw_fd() > LISTEN_FDS_END);
        drop(reserved);
    }
}
