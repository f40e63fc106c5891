//! The lock of a service: one process per service and run directory.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long to wait for a previous instance to exit.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The lock file of a service: in its own directory, as it may run as a user of its own.
pub fn path(run_directory: &Path, service: &str) -> PathBuf {
    run_directory.join(service).join("lock")
}

/// Released when dropped; the kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Why the lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be opened.
    #[error("opening the lock file {path}")]
    Open {
        /// Path of the lock file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Another process holds the lock.
    #[error("{path} is held by process {}: is it already running?", describe(*.holder))]
    Locked {
        /// Path of the lock file.
        path: PathBuf,
        /// Process id of the holder, if the file names it.
        holder: Option<u32>,
    },
}

impl Lock {
    /// A lock that the program before in this process has acquired.
    pub fn inherited(file: File) -> Lock {
        Lock { file }
    }

    /// Acquires the lock; waits up to `timeout` for the holder to exit.
    pub fn acquire(path: &Path, timeout: Duration) -> Result<Lock, LockError> {
        let open = |source| LockError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(open)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) if wait(&file, timeout).map_err(open)? => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Locked {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(errno) => return Err(open(errno.into())),
        }
        // For error messages only; the kernel decides.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = write!(file, "{}", std::process::id());
        Ok(Lock { file })
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Waits until the lock is acquired; returns false at the timeout. `flock` has none: a thread waits, for longer
/// than this process if need be.
fn wait(file: &File, timeout: Duration) -> std::io::Result<bool> {
    if timeout.is_zero() {
        return Ok(false);
    }
    let (acquired, result) = std::sync::mpsc::channel();
    // The lock belongs to the open file, which both descriptors refer to.
    let copy = file.try_clone()?;
    let waiting = move || {
        let _ = acquired.send(rustix::io::retry_on_intr(|| {
            flock(&copy, FlockOperation::LockExclusive)
        }));
    };
    std::thread::Builder::new()
        .name("lock".to_owned())
        .spawn(waiting)?;
    match result.recv_timeout(timeout) {
        Ok(acquired) => Ok(acquired.map(|()| true)?),
        Err(_) => Ok(false),
    }
}

fn describe(holder: Option<u32>) -> String {
    holder.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(32).read_to_string(&mut text));
    read.ok().and_then(|_| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_first_ones_pid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let first = Lock::acquire(&path, Duration::ZERO).unwrap();
        let refused = Lock::acquire(&path, Duration::ZERO).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&std::process::id().to_string()),
            "{refused}"
        );
        let next = std::thread::spawn({
            let path = path.clone();
            move || Lock::acquire(&path, TIMEOUT).map(drop)
        });
        drop(first);
        next.join().unwrap().unwrap();
        Lock::acquire(&path, Duration::ZERO).unwrap();
    }
}
