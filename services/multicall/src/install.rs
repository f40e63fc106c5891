use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the names could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("finding this program's own file")]
    Own(#[source] io::Error),
    #[error("making the directory {path}")]
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
    #[error("making the link {path}")]
    Link {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("putting {path} in its place")]
    Place {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Makes `names` in a directory, all links to one copy of this file. What has these names already is
/// replaced one by one, each at once; what runs of it runs on.
///
/// # Errors
/// With the path that could not be made. Names that were made before it stay.
pub(crate) fn install<'a>(
    directory: &Path,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), InstallError> {
    // Also right when the file was replaced since this process began.
    fs::metadata("/proc/self/exe").map_err(InstallError::Own)?;
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
        // Of an installation that was cut off.
        let _ = fs::remove_file(&link);
        fs::hard_link(&new, &link).map_err(|source| InstallError::Link {
            path: at(&link),
            source,
        })?;
        fs::rename(&link, &path).map_err(|source| InstallError::Place { path, source })?;
    }
    let ended = fs::remove_file(&new).and_then(|()| fs::File::open(directory)?.sync_all());
    ended.map_err(|source| InstallError::Place { path: new, source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn all_names_are_one_file_and_what_was_there_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("polylet"), "an older one").unwrap();
        // An installation that was cut off.
        fs::write(bin.join(".polylet-pleg.new"), "half").unwrap();
        install(&bin, ["polylet", "polylet-pleg", "polylet-multicall"]).unwrap();
        let of = |name: &str| fs::metadata(bin.join(name)).unwrap();
        assert_eq!(of("polylet").ino(), of("polylet-pleg").ino());
        assert_eq!(of("polylet").nlink(), 3);
        assert_eq!(
            of("polylet").len(),
            fs::metadata("/proc/self/exe").unwrap().len()
        );
        assert_eq!(of("polylet").mode() & 0o111, 0o111);
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 3);
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bin"), "a file").unwrap();
        let error = install(&dir.path().join("bin"), ["polylet"]).unwrap_err();
        assert!(error.to_string().ends_with("/bin"), "{error}");
    }
}
