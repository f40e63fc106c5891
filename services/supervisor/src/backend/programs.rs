//! The versions of the services' programs on disk, and the links that say which of them run.
//!
//! ```text
//! <directory>/polylet-pleg                        the link, which service managers execute
//! <directory>/pleg/0.1.0/polylet-pleg             a version
//! <directory>/package/                            files of the package, which become versions
//! ```
//!
//! A link is replaced by a rename: at any moment, also of a power cut, it names the one version or the
//! other. Running processes are not affected.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::core::upgrade::program::is_version_name;

/// Where a package has its own files, below the store's directory.
const PACKAGE: &str = "package";

/// Why programs could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramStoreError {
    #[error("{0:?} is not a version")]
    Version(String),
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} does not exist")]
    Missing { path: PathBuf },
    #[error("{path} is the version that runs")]
    Active { path: PathBuf },
}

/// What a link names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActiveProgram {
    /// A version.
    Version(String),
    /// No link but a file, or a link to elsewhere: not yet a version.
    File,
}

/// The programs of a node.
#[derive(Debug, Clone)]
pub(crate) struct ProgramStore {
    directory: PathBuf,
}

impl ProgramStore {
    /// The programs in a directory (`binDirectory`).
    pub(crate) fn new(directory: PathBuf) -> ProgramStore {
        ProgramStore { directory }
    }

    /// The link of a service, which service managers execute.
    pub(crate) fn link(&self, service: &str) -> PathBuf {
        self.directory.join(file_name(service))
    }

    /// The file of a version.
    pub(crate) fn file(&self, service: &str, version: &str) -> PathBuf {
        self.directory.join(relative(service, version))
    }

    /// What the link of a service names.
    pub(crate) fn active(&self, service: &str) -> Result<ActiveProgram, ProgramStoreError> {
        let link = self.link(service);
        match fs::read_link(&link) {
            Ok(target) => {
                let version = target.parent().and_then(Path::file_name);
                let version = version.and_then(|name| name.to_str()).unwrap_or_default();
                Ok(if target == relative(service, version) {
                    ActiveProgram::Version(version.to_owned())
                } else {
                    ActiveProgram::File
                })
            }
            // Not a link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(ActiveProgram::File),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ProgramStoreError::Missing { path: link })
            }
            Err(source) => Err(ProgramStoreError::Read { path: link, source }),
        }
    }

    /// The versions of a service, sorted as text.
    pub(crate) fn versions(&self, service: &str) -> Result<Vec<String>, ProgramStoreError> {
        let path = self.directory.join(service);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ProgramStoreError::Read { path, source }),
        };
        let mut versions = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ProgramStoreError::Read {
                path: path.clone(),
                source,
            })?;
            let Ok(version) = entry.file_name().into_string() else {
                continue;
            };
            if self.file(service, &version).is_file() {
                versions.push(version);
            }
        }
        versions.sort();
        Ok(versions)
    }

    /// Puts a program into the store. Complete on disk when this returns; one of the same version is
    /// replaced. A file of the package is linked: the services' programs then stay one file, whose pages
    /// their processes share, and packages replace their files instead of writing to them. Others are copied.
    pub(crate) fn install(
        &self,
        service: &str,
        version: &str,
        from: &Path,
    ) -> Result<(), ProgramStoreError> {
        let package = fs::canonicalize(self.directory.join(PACKAGE)).ok();
        let file = fs::canonicalize(from).ok();
        let packaged = file.filter(|file| package.is_some_and(|package| file.starts_with(package)));
        self.place(service, version, |new| {
            if let Some(packaged) = &packaged
                && fs::hard_link(packaged, new).is_ok()
            {
                return Ok(());
            }
            fs::copy(from, new)?;
            fs::set_permissions(new, fs::Permissions::from_mode(0o755))
        })
    }

    /// Makes a version out of the file that has the name of the link.
    pub(crate) fn adopt(&self, service: &str, version: &str) -> Result<(), ProgramStoreError> {
        let link = self.link(service);
        let file = fs::canonicalize(&link)
            .map_err(|source| ProgramStoreError::Read { path: link, source })?;
        self.place(service, version, |new| {
            // A copy where the file is on another file system.
            fs::hard_link(&file, new).or_else(|_| fs::copy(&file, new).map(|_| ()))
        })
    }

    /// Makes a version the one that runs from the next start on.
    pub(crate) fn activate(&self, service: &str, version: &str) -> Result<(), ProgramStoreError> {
        let file = self.version_file(service, version)?;
        if !file.is_file() {
            return Err(ProgramStoreError::Missing { path: file });
        }
        let link = self.link(service);
        let new = self.directory.join(format!(".{}.new", file_name(service)));
        // May remain from an interrupted change.
        let _ = fs::remove_file(&new);
        let changed = symlink(relative(service, version), &new)
            .and_then(|()| fs::rename(&new, &link))
            .and_then(|()| sync(&self.directory));
        changed.map_err(|source| ProgramStoreError::Write { path: link, source })
    }

    /// Removes a version that does not run.
    pub(crate) fn remove(&self, service: &str, version: &str) -> Result<(), ProgramStoreError> {
        let path = self.version_file(service, version)?;
        if self.active(service)? == ActiveProgram::Version(version.to_owned()) {
            return Err(ProgramStoreError::Active { path });
        }
        let directory = self.directory.join(service).join(version);
        fs::remove_dir_all(&directory).map_err(|source| ProgramStoreError::Write {
            path: directory,
            source,
        })
    }

    fn place(
        &self,
        service: &str,
        version: &str,
        write: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), ProgramStoreError> {
        let path = self.version_file(service, version)?;
        let directory = self.directory.join(service).join(version);
        let new = directory.join(".new");
        let placed = || {
            fs::create_dir_all(&directory)?;
            // Services of other users run it, whatever this process keeps from them by default (umask).
            let all_enter = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.directory.join(service), all_enter.clone())?;
            fs::set_permissions(&directory, all_enter)?;
            // May remain from an interrupted installation.
            let _ = fs::remove_file(&new);
            write(&new)?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &path)?;
            sync(&directory)?;
            sync(&self.directory.join(service))
        };
        placed().map_err(|source| ProgramStoreError::Write {
            path: path.clone(),
            source,
        })
    }

    /// The file of a version whose name is one of a directory.
    fn version_file(&self, service: &str, version: &str) -> Result<PathBuf, ProgramStoreError> {
        if !is_version_name(version) {
            return Err(ProgramStoreError::Version(version.to_owned()));
        }
        Ok(self.file(service, version))
    }
}

/// The name of a service's program.
pub(crate) fn file_name(service: &str) -> String {
    match service {
        "supervisor" => "polylet".to_owned(),
        _ => format!("polylet-{service}"),
    }
}

/// The target of the link to a version.
fn relative(service: &str, version: &str) -> PathBuf {
    Path::new(service).join(version).join(file_name(service))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_installed_activated_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        let program = dir.path().join("program");
        fs::write(&program, "v1").unwrap();
        assert!(matches!(
            store.active("pleg"),
            Err(ProgramStoreError::Missing { .. })
        ));
        store.install("pleg", "0.1.0", &program).unwrap();
        store.activate("pleg", "0.1.0").unwrap();
        fs::write(&program, "v2").unwrap();
        store.install("pleg", "0.2.0-rc.1", &program).unwrap();
        assert_eq!(fs::read(store.link("pleg")).unwrap(), b"v1");
        store.activate("pleg", "0.2.0-rc.1").unwrap();
        assert_eq!(fs::read(store.link("pleg")).unwrap(), b"v2");
        assert_eq!(
            store.active("pleg").unwrap(),
            ActiveProgram::Version("0.2.0-rc.1".to_owned())
        );
        assert_eq!(store.versions("pleg").unwrap(), ["0.1.0", "0.2.0-rc.1"]);
        let mode = fs::metadata(store.link("pleg"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
        let active = store.remove("pleg", "0.2.0-rc.1");
        assert!(matches!(active, Err(ProgramStoreError::Active { .. })));
        store.remove("pleg", "0.1.0").unwrap();
        assert_eq!(store.versions("pleg").unwrap(), ["0.2.0-rc.1"]);
        let missing = store.activate("pleg", "0.1.0");
        assert!(matches!(missing, Err(ProgramStoreError::Missing { .. })));
        assert_eq!(store.link("supervisor"), dir.path().join("polylet"));
    }

    #[test]
    fn a_file_of_the_package_is_shared() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        let package = dir.path().join(PACKAGE);
        fs::create_dir(&package).unwrap();
        fs::write(package.join("multicall"), "v1").unwrap();
        symlink("multicall", package.join("polylet-pleg")).unwrap();
        for service in ["pleg", "prober"] {
            let from = package.join("polylet-pleg");
            store.install(service, "0.1.0", &from).unwrap();
        }
        let inode = |service: &str| fs::metadata(store.file(service, "0.1.0")).unwrap().ino();
        assert_eq!(inode("pleg"), inode("prober"));
    }

    #[test]
    fn a_plain_file_becomes_a_version() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        fs::write(store.link("pleg"), "plain").unwrap();
        assert_eq!(store.active("pleg").unwrap(), ActiveProgram::File);
        store.adopt("pleg", "0.1.0").unwrap();
        store.activate("pleg", "0.1.0").unwrap();
        assert_eq!(fs::read(store.link("pleg")).unwrap(), b"plain");
        let version = ActiveProgram::Version("0.1.0".to_owned());
        assert_eq!(store.active("pleg").unwrap(), version);
    }

    #[test]
    fn versions_cannot_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        for version in ["", ".", "..", "../x", "a/b", "a b"] {
            let installed = store.install("pleg", version, Path::new("/bin/true"));
            assert!(
                matches!(installed, Err(ProgramStoreError::Version(_))),
                "{version:?}"
            );
        }
    }

    #[test]
    fn a_file_of_the_package_is_linked_and_another_one_copied() {
        use std::os::unix::fs::MetadataExt;
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = ProgramStore::new(dir.path().to_owned());
        fs::create_dir(dir.path().join("package")).unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        for (directory, linked) in [
            (dir.path().join("package"), true),
            (elsewhere.path().to_owned(), false),
        ] {
            let program = directory.join("polylet-pleg");
            fs::write(&program, "v1").unwrap();
            store.install("pleg", "0.1.0", &program).unwrap();
            let installed = store.file("pleg", "0.1.0");
            assert_eq!(inode(&installed) == inode(&program), linked);
        }
    }

    #[test]
    fn other_users_may_run_a_version() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        // As with a umask of 0077.
        let made = [dir.path().join("pleg"), dir.path().join("pleg/0.1.0")];
        fs::create_dir_all(&made[1]).unwrap();
        for directory in &made {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let program = dir.path().join("program");
        fs::write(&program, "v1").unwrap();
        store.install("pleg", "0.1.0", &program).unwrap();
        for path in made.into_iter().chain([store.file("pleg", "0.1.0")]) {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{}", path.display());
        }
    }

    #[test]
    fn an_interrupted_change_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::new(dir.path().to_owned());
        fs::create_dir_all(dir.path().join("pleg/0.1.0")).unwrap();
        fs::write(dir.path().join("pleg/0.1.0/.new"), "half").unwrap();
        symlink("nowhere", dir.path().join(".polylet-pleg.new")).unwrap();
        assert!(store.versions("pleg").unwrap().is_empty());
        fs::write(dir.path().join("program"), "v1").unwrap();
        store
            .install("pleg", "0.1.0", &dir.path().join("program"))
            .unwrap();
        store.activate("pleg", "0.1.0").unwrap();
        assert_eq!(fs::read(store.link("pleg")).unwrap(), b"v1");
    }
}
