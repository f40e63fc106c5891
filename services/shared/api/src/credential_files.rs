//! The files that a client is built from, and how their changes are noticed.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use kube::config::Kubeconfig;
use tokio::time::sleep;

/// How often the files are checked where inotify is unavailable.
const POLL_PERIOD: Duration = Duration::from_secs(30);

/// Inode, modification time (seconds, nanoseconds) and size; `None` for a missing file.
type FileVersion = Option<(u64, i64, i64, u64)>;

/// The files behind a client, with their versions at the time it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles(Vec<(PathBuf, FileVersion)>);

impl CredentialFiles {
    /// The kubeconfig and the files that it refers to.
    pub(crate) fn new(path: &Path, kubeconfig: Option<&Kubeconfig>) -> CredentialFiles {
        let mut files = vec![path.to_owned()];
        if let Some(kubeconfig) = kubeconfig {
            let clusters = kubeconfig
                .clusters
                .iter()
                .filter_map(|named| named.cluster.as_ref());
            files.extend(
                clusters
                    .filter_map(|cluster| cluster.certificate_authority.as_ref())
                    .map(PathBuf::from),
            );
            for user in kubeconfig
                .auth_infos
                .iter()
                .filter_map(|named| named.auth_info.as_ref())
            {
                files.extend(user.client_certificate.as_ref().map(PathBuf::from));
                files.extend(user.client_key.as_ref().map(PathBuf::from));
            }
        }
        files.sort();
        files.dedup();
        CredentialFiles(files.into_iter().map(with_version).collect())
    }

    /// Adds a file.
    pub(crate) fn with(mut self, path: Option<&Path>) -> CredentialFiles {
        let is_new = |path: &&Path| !self.0.iter().any(|(known, _)| known == path);
        if let Some(path) = path.filter(is_new) {
            self.0.push(with_version(path.to_owned()));
        }
        self
    }

    /// Whether the version of any file is another one now.
    pub(crate) fn have_changed(&self) -> bool {
        self.0
            .iter()
            .any(|(path, version)| version_of(path) != *version)
    }

    /// Resolves when any file may have changed: by inotify, or after [`POLL_PERIOD`] where that is
    /// unavailable.
    pub(crate) async fn changed(&self) {
        while !self.have_changed() {
            let Ok((inotify, names)) = self.watch_directories() else {
                return sleep(POLL_PERIOD).await;
            };
            let mut buffer = [0; 1024];
            let Ok(mut events) = inotify.into_event_stream(&mut buffer) else {
                return sleep(POLL_PERIOD).await;
            };
            // There is no event for a change, or a new directory, from before the watch began.
            if self.have_changed() {
                return;
            }
            if self.watch_directories().is_ok_and(|(_, now)| now != names) {
                continue;
            }
            loop {
                match events.next().await {
                    // This may be a directory on the path: set the watches up again.
                    Some(Ok(event)) if event.name.as_ref().is_none_or(|n| names.contains(n)) => {
                        break;
                    }
                    Some(Ok(_)) => {}
                    _ => return sleep(POLL_PERIOD).await,
                }
            }
        }
    }

    /// Watches the files' directories, as files are replaced by renaming, also those behind links.
    /// In place of a missing directory, its nearest existing ancestor is watched. Returns the names
    /// to look for in events.
    fn watch_directories(&self) -> std::io::Result<(Inotify, Vec<OsString>)> {
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::ATTRIB
            | WatchMask::DELETE;
        let mut names = Vec::new();
        for (path, _) in &self.0 {
            let watched = path
                .ancestors()
                .filter_map(|path| Some((path.parent()?, path.file_name()?)))
                .find(|(directory, _)| inotify.watches().add(directory, mask).is_ok());
            names.extend(watched.map(|(_, name)| name.to_owned()));
        }
        if names.is_empty() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Ok((inotify, names))
    }
}

fn with_version(path: PathBuf) -> (PathBuf, FileVersion) {
    let version = version_of(&path);
    (path, version)
}

fn version_of(path: &Path) -> FileVersion {
    let version = |meta: Metadata| (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size());
    std::fs::metadata(path).ok().map(version)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_file_in_a_new_directory_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/kubernetes/kubelet.conf");
        let files = CredentialFiles::new(&path, None);
        let create = async {
            tokio::task::yield_now().await;
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            tokio::task::yield_now().await;
            std::fs::write(&path, "x").unwrap();
        };
        let changed = timeout(Duration::from_secs(10), files.changed());
        let (changed, ()) = tokio::join!(changed, create);
        assert!(changed.is_ok() && files.have_changed());
    }
}
