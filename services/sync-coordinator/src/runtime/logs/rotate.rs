//! One rotation, in an order that may be interrupted anywhere.
//!
//! The log is renamed, and the runtime reopens it; until then the runtime writes to the renamed file.
//! If this process dies in between, the next check finds no log and has it reopened. Older files are
//! removed and compressed only after that; the newest rotated one, which the runtime may still
//! write, is left as it is.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{LogError, compress};
use crate::core::log_rotation::{LogLimits, files};

/// Has the runtime open a log that does not exist.
pub(super) async fn reopen(runtime: &RuntimeClient, id: &str, path: &Path) -> Result<(), LogError> {
    let reopened = runtime.reopen_container_log(id).await;
    reopened.map_err(|source| LogError::Reopen {
        path: path.to_owned(),
        source,
    })
}

/// Rotates a log. If the runtime does not reopen it, the renamed file is restored.
pub(super) async fn rotate(
    runtime: &RuntimeClient,
    id: &str,
    path: &Path,
    limits: LogLimits,
) -> Result<(), LogError> {
    let log = LogPath::new(path)?;
    let rotated = log.dir.join(files::next_name(
        &log.name,
        &log.siblings()?,
        Timestamp::now(),
    ));
    rename(path, &rotated).map_err(|source| LogError::Rename {
        path: path.to_owned(),
        source,
    })?;
    if let Err(error) = reopen(runtime, id, path).await {
        // If it has reopened the log and only the response was lost, the new file stays.
        if let Err(error) = rename(&rotated, path) {
            tracing::debug!(path = %path.display(), %error, "failed to restore renamed log");
        }
        return Err(error);
    }
    tracing::debug!(path = %path.display(), "rotated log");
    clean_up(path, limits).await
}

/// Renames a file, never over an existing one.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Removes and compresses the rotated files of a log.
pub(super) async fn clean_up(path: &Path, limits: LogLimits) -> Result<(), LogError> {
    let log = LogPath::new(path)?;
    let cleanup = files::clean_up(&log.name, &log.siblings()?, limits.max_files);
    if cleanup == files::RotationCleanup::default() {
        return Ok(());
    }
    let work = move || {
        for name in &cleanup.remove {
            let path = log.dir.join(name);
            ignore_not_found(std::fs::remove_file(&path))
                .map_err(|source| LogError::Remove { path, source })?;
        }
        for name in &cleanup.compress {
            let path = log.dir.join(name);
            compress::compress(&path).map_err(|source| LogError::Compress { path, source })?;
        }
        Ok(())
    };
    let path = path.to_owned();
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LogError::Compress {
            path,
            source: io::Error::other(error),
        }),
    }
}

/// The directory of a log, and the log's name in it.
struct LogPath {
    dir: PathBuf,
    name: String,
}

impl LogPath {
    fn new(path: &Path) -> Result<Self, LogError> {
        match (
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        ) {
            (Some(dir), Some(name)) => Ok(LogPath {
                dir: dir.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(LogError::List {
                dir: path.to_owned(),
                source: io::ErrorKind::InvalidInput.into(),
            }),
        }
    }

    fn siblings(&self) -> Result<Vec<String>, LogError> {
        let failed = |source| LogError::List {
            dir: self.dir.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            // Log names are UTF-8.
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        Ok(names)
    }
}

/// The pod may be removed at this moment, with all its files.
fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
