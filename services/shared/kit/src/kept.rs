//! Files that matter: written aside, synced, renamed, and the directory synced, so that after any
//! crash the file holds either the old content or the new one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What can go wrong with a kept file.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The data cannot be written as JSON.
    #[error("encoding {path}")]
    Encode {
        /// The kept file.
        path: PathBuf,
        /// What the encoder said.
        #[source]
        source: serde_json::Error,
    },
    /// The file cannot be written.
    #[error("writing {path}")]
    Write {
        /// The kept file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is there and cannot be read.
    #[error("reading {path}")]
    Read {
        /// The kept file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what was written.
    #[error("{path} is broken")]
    Broken {
        /// The kept file.
        path: PathBuf,
        /// What the decoder said.
        #[source]
        source: serde_json::Error,
    },
    /// Written by another build, in a form that this one does not know.
    #[error("{path} has version {found}, this build reads version {known}")]
    Version {
        /// The kept file.
        path: PathBuf,
        /// What is in the file.
        found: u32,
        /// What this build knows.
        known: u32,
    },
    /// A broken file cannot be put out of the way.
    #[error("setting {path} aside")]
    SetAside {
        /// The kept file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

#[derive(Serialize)]
struct Written<'a, T> {
    version: u32,
    data: &'a T,
}

/// Read of what cannot be read otherwise: the data of another version may have another shape.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    version: u32,
    data: T,
}

/// Saves `data`, readable by the owner alone.
pub fn save<T: Serialize>(path: &Path, version: u32, data: &T) -> Result<(), KeptError> {
    // As it is made: the text of all that a service keeps may be a hundred megabytes.
    let mut encoding = Ok(());
    let written = replace(path, |file| {
        encoding = serde_json::to_writer(&mut *file, &Written { version, data });
        match &mut encoding {
            Err(error) if !error.is_io() => Err(std::io::ErrorKind::InvalidData.into()),
            Err(_) => std::mem::replace(&mut encoding, Ok(())).map_err(Into::into),
            Ok(()) => Ok(()),
        }
    });
    let path = path.to_owned();
    match (encoding, written) {
        (Err(source), _) => Err(KeptError::Encode { path, source }),
        (Ok(()), written) => written
            .map(drop)
            .map_err(|source| KeptError::Write { path, source }),
    }
}

/// Writes a file that has a format of its own: aside first, then in place, and on disk when this
/// returns.
pub fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    replace(path, |file| file.write_all(text)).map(drop)
}

/// The same of what `fill` writes. The file that is in place then, to be written on at its end: what
/// comes behind is whoever holds it to sync, and to tell from what a crash cut off.
pub fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let aside = with_suffix(path, ".new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    let mut writer = BufWriter::with_capacity(1 << 16, &mut file);
    fill(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.sync_all()?;
    fs::rename(&aside, path)?;
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all()?,
        _ => File::open(".")?.sync_all()?,
    }
    Ok(file)
}

/// What was saved; `None` when nothing was.
pub fn load<T: DeserializeOwned>(path: &Path, version: u32) -> Result<Option<T>, KeptError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(KeptError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let broken = |source| KeptError::Broken {
        path: path.to_owned(),
        source,
    };
    let read: Result<Read<T>, _> = serde_json::from_slice(&text);
    match read {
        Ok(read) if read.version == version => return Ok(Some(read.data)),
        _ => {}
    }
    let Version { version: found } = serde_json::from_slice(&text).map_err(broken)?;
    if found != version {
        return Err(KeptError::Version {
            path: path.to_owned(),
            found,
            known: version,
        });
    }
    read.map(|read| Some(read.data)).map_err(broken)
}

/// What was saved, of a file that is no loss for ever: one that cannot be used is told of, set aside,
/// and counts as none. `without` says what follows, for people.
pub fn load_or_set_aside<T: DeserializeOwned>(
    path: &Path,
    version: u32,
    without: &str,
) -> Option<T> {
    load(path, version).unwrap_or_else(|error| {
        tracing::warn!("{without}: {}", crate::report(&error));
        if let Err(error) = set_aside(path) {
            tracing::warn!("it stays where it is: {}", crate::report(&error));
        }
        None
    })
}

/// Renames a file that cannot be used to `<name>.broken`, for people to look at.
pub fn set_aside(path: &Path) -> Result<PathBuf, KeptError> {
    let to = with_suffix(path, ".broken");
    match fs::rename(path, &to) {
        Ok(()) => Ok(to),
        Err(source) => Err(KeptError::SetAside {
            path: path.to_owned(),
            source,
        }),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        assert_eq!(load::<Vec<u32>>(&path, 1).unwrap(), None);
        save(&path, 1, &vec![1, 2]).unwrap();
        assert_eq!(load::<Vec<u32>>(&path, 1).unwrap(), Some(vec![1, 2]));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(matches!(
            load::<Vec<u32>>(&path, 2),
            Err(KeptError::Version { found: 1, .. })
        ));
    }

    #[test]
    fn a_broken_file_is_an_error_and_can_be_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        for text in ["", "{", "{\"version\":1}", "{\"version\":1,\"data\":{}}"] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(load::<Vec<u32>>(&path, 1), Err(KeptError::Broken { .. })),
                "{text}"
            );
        }
        assert!(set_aside(&path).unwrap().ends_with("x.json.broken"));
        assert_eq!(load::<Vec<u32>>(&path, 1).unwrap(), None);
        let kept = || load_or_set_aside::<Vec<u32>>(&path, 1, "it begins anew");
        assert_eq!(kept(), None);
        fs::write(&path, "{").unwrap();
        assert_eq!(kept(), None);
        assert!(!path.exists() && dir.path().join("x.json.broken").exists());
        save(&path, 1, &vec![3]).unwrap();
        assert_eq!(kept(), Some(vec![3]));
    }
}
