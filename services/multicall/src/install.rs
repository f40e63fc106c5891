//! Installation of the executable under the names of all programs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An installation failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("finding the file of this program")]
    OwnFile(#[source] io::Error),
    #[error("creating the directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("copying this program to {path}")]
    Copy {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("creating the link {path}")]
    Link {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("replacing {path}")]
    Replace {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Creates `names` in a directory, as hard links to one copy of this file. Existing files are replaced
/// atomically, one by one; running processes are not affected.
///
/// # Errors
/// With the path that could not be created. Names that were created before stay.
pub(crate) fn install<'a>(
    directory: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), InstallError> {
    // Valid even if the file has been replaced since this process started.
    fs::metadata("/proc/self/exe").map_err(InstallError::OwnFile)?;
    let at = |path: &Path| path.to_owned();
    fs::create_dir_all(directory).map_err(|source| InstallError::Directory {
        path: at(directory),
        source,
    })?;
    let new = directory.join(".polylet.copy");
    let copied = fs::copy("/proc/self/exe", &new).and_then(|_| fs::File::open(&new)?.sync_all());
    copied.map_err(|source| InstallError::Copy {
        path: at(&new),
        source,
    })?;
    for name in names {
        let (path, link) = (directory.join(name), directory.join(format!(".{name}.new")));
        // May remain from an interrupted installation.
        let _ = fs::remove_file(&link);
        fs::hard_link(&new, &link).map_err(|source| InstallError::Link {
            path: at(&link),
            source,
        })?;
        fs::rename(&link, &path).map_err(|source| InstallError::Replace { path, source })?;
    }
    let ended = fs::remove_file(&new).and_then(|()| fs::File::open(directory)?.sync_all());
    ended.map_err(|source| InstallError::Replace { path: new, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn names_are_links_to_one_file_and_existing_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("polylet"), "an older one").unwrap();
        // An interrupted installation.
        fs::write(bin.join(".polylet-pleg.new"), "half").unwrap();
        install(&bin, ["polylet", "polylet-pleg", "polylet-multicall"]).unwrap();
        let metadata = |name: &str| fs::metadata(bin.join(name)).unwrap();
        assert_eq!(metadata("polylet").ino(), metadata("polylet-pleg").ino());
        assert_eq!(metadata("polylet").nlink(), 3);
        assert_eq!(
            metadata("polylet").len(),
            fs::metadata("/proc/self/exe").unwrap().len()
        );
        assert_eq!(metadata("polylet").mode() & 0o111, 0o111);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 3);
    }

    #[test]
    fn error_names_the_path() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bin"), "a file").unwrap();
        let error = install(&dir.path().join("bin"), ["polylet"]).unwrap_err();
        assert!(error.to_string().ends_with("/bin"), "{error}");
    }
}
