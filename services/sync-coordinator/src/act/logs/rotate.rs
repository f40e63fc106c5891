//! One rotation, in an order that may be cut short anywhere.
//!
//! The log is moved away, and the runtime opens a new one; until it does it goes on writing into
//! the file that was moved. Should this process die in between, the next look finds no log and has
//! it opened. Older files are put in order only after that: the newest rotated one, which the
//! runtime may still be writing to, is never touched.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use polylet_cri::Runtime;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{LogError, pack};
use crate::core::logs::{Limits, files};

/// Has the runtime open a log that is not there.
pub(super) async fn reopen(runtime: &Runtime, id: &str, path: &Path) -> Result<(), LogError> {
    let reopened = runtime.reopen_container_log(id).await;
    reopened.map_err(|source| LogError::Reopen {
        path: path.to_owned(),
        source,
    })
}

/// Rotates a log. When the runtime does not open a new one, the old one is put back.
pub(super) async fn rotate(
    runtime: &Runtime,
    id: &str,
    path: &Path,
    limits: Limits,
) -> Result<(), LogError> {
    let place = Place::of(path)?;
    let away = place.folder.join(files::next_name(
        &place.log,
        &place.names()?,
        Timestamp::now(),
    ));
    rename(path, &away).map_err(|source| LogError::Move {
        path: path.to_owned(),
        source,
    })?;
    if let Err(error) = reopen(runtime, id, path).await {
        // Where it did so all the same, and only its answer was lost, the new file stays.
        if let Err(error) = rename(&away, path) {
            tracing::debug!(path = %path.display(), %error, "rotated log not put back");
        }
        return Err(error);
    }
    tracing::debug!(path = %path.display(), "log rotated");
    tidy(path, limits).await
}

/// Never over a file that is there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Puts a log's rotated files in order.
pub(super) async fn tidy(path: &Path, limits: Limits) -> Result<(), LogError> {
    let place = Place::of(path)?;
    let upkeep = files::upkeep(&place.log, &place.names()?, limits.files);
    if upkeep == files::Upkeep::default() {
        return Ok(());
    }
    let work = move || {
        for name in &upkeep.remove {
            let path = place.folder.join(name);
            gone(std::fs::remove_file(&path))
                .map_err(|source| LogError::Remove { path, source })?;
        }
        for name in &upkeep.pack {
            let path = place.folder.join(name);
            pack::pack(&path).map_err(|source| LogError::Pack { path, source })?;
        }
        Ok(())
    };
    let path = path.to_owned();
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(LogError::Pack {
            path,
            source: io::Error::other(error),
        }),
    }
}

/// The folder of a log, and the log's name in it.
struct Place {
    folder: PathBuf,
    log: String,
}

impl Place {
    fn of(path: &Path) -> Result<Self, LogError> {
        match (
            path.parent(),
            path.file_name().and_then(|name| name.to_str()),
        ) {
            (Some(folder), Some(log)) => Ok(Place {
                folder: folder.to_owned(),
                log: log.to_owned(),
            }),
            _ => Err(LogError::List {
                folder: path.to_owned(),
                source: io::ErrorKind::InvalidInput.into(),
            }),
        }
    }

    fn names(&self) -> Result<Vec<String>, LogError> {
        let failed = |source| LogError::List {
            folder: self.folder.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            // Names that are no text are none of ours.
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        Ok(names)
    }
}

/// The pod may be leaving at this moment, with all its files.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
