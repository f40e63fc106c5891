//! When the files that a client was made of change.

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use kube::config::Kubeconfig;
use tokio::time::sleep;

/// What tells one state of a file from another.
type Stamp = Option<(u64, i64, i64, u64)>;

/// The files behind a client, as they were when it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files(Vec<(PathBuf, Stamp)>);

impl Files {
    /// The kubeconfig and the files that it names.
    pub(crate) fn of(path: &Path, kubeconfig: Option<&Kubeconfig>) -> Files {
        let mut files = vec![path.to_owned()];
        if let Some(kubeconfig) = kubeconfig {
            let clusters = kubeconfig
                .clusters
                .iter()
                .filter_map(|c| c.cluster.as_ref());
            files.extend(
                clusters
                    .filter_map(|c| c.certificate_authority.as_ref())
                    .map(PathBuf::from),
            );
            for user in kubeconfig
                .auth_infos
                .iter()
                .filter_map(|u| u.auth_info.as_ref())
            {
                files.extend(user.client_certificate.as_ref().map(PathBuf::from));
                files.extend(user.client_key.as_ref().map(PathBuf::from));
            }
        }
        files.sort();
        files.dedup();
        Files(files.into_iter().map(stamped).collect())
    }

    /// And another one.
    pub(crate) fn and(mut self, path: Option<&Path>) -> Files {
        let held = |path: &&Path| !self.0.iter().any(|(held, _)| held == path);
        if let Some(path) = path.filter(held) {
            self.0.push(stamped(path.to_owned()));
        }
        self
    }

    /// Whether any of them is another now.
    pub(crate) fn changed(&self) -> bool {
        self.0.iter().any(|(path, was)| stamp(path) != *was)
    }

    /// Resolves when one of them may have changed: by inotify, or after half a minute where that
    /// cannot be had.
    pub(crate) async fn stirred(&self) {
        while !self.changed() {
            let Ok((inotify, names)) = self.watched() else {
                return sleep(Duration::from_secs(30)).await;
            };
            let mut buffer = [0; 1024];
            let Ok(mut events) = inotify.into_event_stream(&mut buffer) else {
                return sleep(Duration::from_secs(30)).await;
            };
            // What changed, or which directory was made, before the watch began is not told.
            if self.changed() {
                return;
            }
            if self.watched().is_ok_and(|(_, now)| now != names) {
                continue;
            }
            loop {
                match events.next().await {
                    // A directory on the way may be there now: watched anew.
                    Some(Ok(event)) if event.name.as_ref().is_none_or(|n| names.contains(n)) => {
                        break;
                    }
                    Some(Ok(_)) => {}
                    _ => return sleep(Duration::from_secs(30)).await,
                }
            }
        }
    }

    /// Their directories, watched: files are replaced by renaming, also those behind links. Of a
    /// directory that is not there, the nearest one above it that is.
    fn watched(&self) -> std::io::Result<(Inotify, Vec<OsString>)> {
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::ATTRIB
            | WatchMask::DELETE;
        let mut names = Vec::new();
        for (path, _) in &self.0 {
            let above = path
                .ancestors()
                .filter_map(|place| Some((place.parent()?, place.file_name()?)));
            let found = above
                .into_iter()
                .find(|(place, _)| inotify.watches().add(place, mask).is_ok());
            names.extend(found.map(|(_, name)| name.to_owned()));
        }
        if names.is_empty() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Ok((inotify, names))
    }
}

fn stamped(path: PathBuf) -> (PathBuf, Stamp) {
    let stamp = stamp(&path);
    (path, stamp)
}

fn stamp(path: &Path) -> Stamp {
    let of = |meta: Metadata| (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size());
    std::fs::metadata(path).ok().map(of)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_file_is_noticed_in_a_directory_that_was_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/kubernetes/kubelet.conf");
        let files = Files::of(&path, None);
        let making = async {
            tokio::task::yield_now().await;
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            tokio::task::yield_now().await;
            std::fs::write(&path, "x").unwrap();
        };
        let stirred = timeout(Duration::from_secs(10), files.stirred());
        let (stirred, ()) = tokio::join!(stirred, making);
        assert!(stirred.is_ok() && files.changed());
    }
}
