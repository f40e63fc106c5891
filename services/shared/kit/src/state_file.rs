//! Files of state that outlive the process: versioned JSON, written to a temporary file, synced,
//! renamed, and the directory synced, so that after any crash the file holds either the old content
//! or the new one.
//!
//! [`StateFile`] is a handle for one file, [`StateDir`](crate::state_dir::StateDir) for one file per
//! key. [`write`] and [`replace`] do the same for files in a format of their own.

use std::borrow::Borrow;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::HealthConditions;

mod error;
mod open;
mod retried;

pub use error::StateFileError;
pub(crate) use open::close;
pub use retried::RetriedFile;

/// One file that holds a `T`, readable by the owner alone.
#[derive(Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    version: u32,
    synced: bool,
    reported: bool,
    data: PhantomData<fn() -> T>,
}

impl<T> Clone for StateFile<T> {
    fn clone(&self) -> Self {
        StateFile {
            path: self.path.clone(),
            ..*self
        }
    }
}

impl<T> StateFile<T> {
    /// A handle; nothing is read or written yet. Raise `version` with each incompatible change of
    /// the format.
    pub fn new(path: impl Into<PathBuf>, version: u32) -> Self {
        StateFile {
            path: path.into(),
            version,
            synced: true,
            reported: true,
            data: PhantomData,
        }
    }

    /// Does not wait for the disk: for state that need not outlive a crash of the node. The file is
    /// still replaced as a whole, never written in place.
    pub fn without_sync(mut self) -> Self {
        self.synced = false;
        self
    }

    /// Sets no health condition when the file cannot be written: for files that can be done without
    /// and are not written again.
    pub fn without_condition(mut self) -> Self {
        self.reported = false;
        self
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if there is one.
    pub fn remove(&self) -> Result<(), StateFileError> {
        remove(&self.path)?;
        HealthConditions::of_process().clear(NOT_WRITTEN, self.path.display());
        Ok(())
    }

    /// Renames a file that cannot be used to `<name>.broken`, for inspection.
    pub fn set_aside(&self) -> Result<PathBuf, StateFileError> {
        set_aside(&self.path)
    }
}

impl<T: DeserializeOwned> StateFile<T> {
    /// The saved data; `None` without a file.
    pub fn load(&self) -> Result<Option<T>, StateFileError> {
        load(&self.path, self.version)
    }

    /// The saved data, at the start of the process: content that cannot be decoded is logged, set
    /// aside and counts as none. `effect` says in the log what follows from that. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, after several attempts, or a newer build wrote it. What it holds is
    /// still valid, so the service must not start without it.
    pub fn restore(&self, effect: &str) -> Result<Option<T>, StateFileError> {
        match with_retry(|| self.load()) {
            Err(error) if error.is_undecodable() => {
                let (path, error) = (self.path.display(), crate::report(&error));
                tracing::warn!(%path, error, effect, "corrupt state file; setting it aside");
                if let Err(error) = self.set_aside() {
                    let error = crate::report(&error);
                    tracing::warn!(%path, error, "could not set the corrupt state file aside");
                }
                Ok(None)
            }
            restored => restored,
        }
    }
}

/// Delays before a file that cannot be read is read again. Then the start of the service fails, and
/// the supervisor repeats it.
const READ_RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
];

/// Repeats an operation while it fails for a reason that may pass. Blocks.
#[allow(
    clippy::disallowed_methods,
    reason = "files are read before the service starts, where nothing else runs"
)]
pub(crate) fn with_retry<T>(
    mut operation: impl FnMut() -> Result<T, StateFileError>,
) -> Result<T, StateFileError> {
    for delay in READ_RETRY_DELAYS {
        match operation() {
            Err(error) if error.is_transient() => std::thread::sleep(delay),
            result => return result,
        }
    }
    operation()
}

impl<T: Serialize> StateFile<T> {
    /// Saves the data. Blocks. A failure is a health condition until the file is saved or removed:
    /// the caller tries again.
    pub fn save(&self, data: &T) -> Result<(), StateFileError> {
        let saved = save(&self.path, self.version, data, self.synced);
        if self.reported {
            HealthConditions::of_process().record(NOT_WRITTEN, self.path.display(), &saved);
        }
        saved
    }

    /// The same on a thread that may block.
    pub async fn save_async<D>(&self, data: D) -> Result<(), StateFileError>
    where
        T: 'static,
        D: Borrow<T> + Send + 'static,
    {
        let file = self.clone();
        let saved = tokio::task::spawn_blocking(move || file.save(data.borrow())).await;
        saved.unwrap_or_else(|error| {
            Err(StateFileError::Write {
                path: self.path.clone(),
                source: std::io::Error::other(error),
            })
        })
    }
}

/// The health condition of a file that cannot be written.
const NOT_WRITTEN: &str = "StateNotWritten";

/// Suffix of a file that could not be used.
pub(crate) const BROKEN: &str = ".broken";
/// Suffix of a file that is still being written.
pub(crate) const TEMPORARY: &str = ".new";

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    data: &'a T,
}

/// Read where the whole cannot be: the data of another version may have another shape.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    version: u32,
    data: T,
}

fn save<T: Serialize>(
    path: &Path,
    version: u32,
    data: &T,
    synced: bool,
) -> Result<(), StateFileError> {
    // Streamed: the JSON of all that a service stores may be a hundred megabytes.
    let mut encoding = Ok(());
    let written = replace_with(path, synced, |file| {
        encoding = serde_json::to_writer(&mut *file, &Written { version, data });
        match &mut encoding {
            Err(error) if !error.is_io() => Err(std::io::ErrorKind::InvalidData.into()),
            Err(_) => std::mem::replace(&mut encoding, Ok(())).map_err(Into::into),
            Ok(()) => Ok(()),
        }
    });
    let path = path.to_owned();
    match (encoding, written) {
        (Err(source), _) => Err(StateFileError::Encode { path, source }),
        (Ok(()), written) => written
            .map(drop)
            .map_err(|source| StateFileError::Write { path, source }),
    }
}

/// Replaces a file in a format of its own; it is on disk when this returns.
pub fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    replace_with(path, true, |file| file.write_all(content)).map(drop)
}

/// The same without waiting for the disk: for files that need not outlive a crash of the node.
pub fn write_without_sync(path: &Path, content: &[u8]) -> std::io::Result<()> {
    replace_with(path, false, |file| file.write_all(content)).map(drop)
}

/// Replaces a file by what `fill` writes, and returns it open for appending. What is appended later
/// is for the caller to sync, and to tell from a line that a crash cut off.
pub fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let replaced = replace_with(path, true, fill);
    HealthConditions::of_process().record(NOT_WRITTEN, path.display(), &replaced);
    replaced
}

fn replace_with(
    path: &Path,
    synced: bool,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let _writing = open::Writing::start()?;
    let temporary = with_suffix(path, TEMPORARY);
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    let mut writer = BufWriter::with_capacity(1 << 16, &mut file);
    fill(&mut writer)?;
    writer.flush()?;
    drop(writer);
    if synced {
        file.sync_all()?;
    }
    fs::rename(&temporary, path)?;
    if synced {
        match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all()?,
            _ => File::open(".")?.sync_all()?,
        }
    }
    Ok(file)
}

fn load<T: DeserializeOwned>(path: &Path, version: u32) -> Result<Option<T>, StateFileError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(StateFileError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let corrupt = |source| StateFileError::Corrupt {
        path: path.to_owned(),
        source,
    };
    let read: Result<Read<T>, _> = serde_json::from_slice(&text);
    match read {
        Ok(read) if read.version == version => return Ok(Some(read.data)),
        _ => {}
    }
    let Version { version: found } = serde_json::from_slice(&text).map_err(corrupt)?;
    if found != version {
        let (path, known) = (path.to_owned(), version);
        return Err(if found > known {
            StateFileError::NewerVersion { path, found, known }
        } else {
            StateFileError::Version { path, found, known }
        });
    }
    read.map(|read| Some(read.data)).map_err(corrupt)
}

/// Renames a file that cannot be used to `<name>.broken`, for inspection.
pub fn set_aside(path: &Path) -> Result<PathBuf, StateFileError> {
    let to = with_suffix(path, BROKEN);
    match fs::rename(path, &to) {
        Ok(()) => Ok(to),
        Err(source) => Err(StateFileError::SetAside {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(crate) fn remove(path: &Path) -> Result<(), StateFileError> {
    let removed = open::Writing::start().and_then(|_writing| fs::remove_file(path));
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(StateFileError::Remove {
                path: path.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
