use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::error::{HarnessError, file};
use crate::machine;

/// FNV-1a hash of everything that a cached directory is built from; not security-relevant.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Adds an input.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The cache directory of what is built from these inputs, below the target directory.
pub fn dir(name: &str, inputs: &Fingerprint) -> PathBuf {
    let name = format!("{name}-{:016x}", inputs.0);
    machine::target_dir().join("testbed").join(name)
}

/// Locks a cache directory for building: one process builds, the others wait. Creates the directory
/// if necessary; `on_wait` is called once if another process holds the lock.
///
/// # Errors
/// Fails if the directory or its lock cannot be created.
pub async fn lock(dir: &Path, on_wait: &dyn Fn()) -> Result<File, HarnessError> {
    file("make", dir, fs::create_dir_all(dir))?;
    let path = dir.join("lock");
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let lock = file("open", &path, opened)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok(lock);
    }
    on_wait();
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return file("lock", &path, Err(error.into()));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(lock)
}
