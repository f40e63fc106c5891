//! One process per service and run directory.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long a predecessor may take to end before a start is refused.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Held as long as the value lives; the kernel lets go when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be opened.
    #[error("opening the lock file {path}")]
    Open {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Somebody else has it.
    #[error("{path} is held by process {holder}: is it already running?")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Its process id, as far as it is known.
        holder: String,
    },
}

impl Lock {
    /// Takes the lock, waiting up to `patience` for the holder to end.
    pub fn take(path: &Path, patience: Duration) -> Result<Lock, LockError> {
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
        let started = Instant::now();
        let mut pause = Duration::from_millis(5);
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK && errno != rustix::io::Errno::INTR {
                return Err(open(errno.into()));
            }
            if started.elapsed() >= patience {
                return Err(LockError::Held {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                });
            }
            #[allow(
                clippy::disallowed_methods,
                reason = "before the runtime exists; flock has no deadline"
            )]
            // Before the runtime starts, so there is nobody to hold up.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
        // For people only: who holds the lock is decided by the kernel.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = write!(file, "{}", std::process::id());
        Ok(Lock { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(32).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => pid.to_string(),
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_refused_and_told_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let first = Lock::take(&path, Duration::ZERO).unwrap();
        let refused = Lock::take(&path, Duration::ZERO).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        Lock::take(&path, Duration::ZERO).unwrap();
    }
}
