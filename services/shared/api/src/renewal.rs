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

    /// Whether any of them is another now.
    pub(crate) fn changed(&self) -> bool {
        self.0.iter().any(|(path, was)| stamp(path) != *was)
    }

    /// Resolves when one of them may have changed: by inotify, or after half a minute where that
    /// cannot be had.
    pub(crate) async fn stirred(&self) {
        match self.watched() {
            Ok((inotify, names)) => {
                let mut buffer = [0; 1024];
                let Ok(mut events) = inotify.into_event_stream(&mut buffer) else {
                    return sleep(Duration::from_secs(30)).await;
                };
                // What changed before the watch began is not told.
                while !self.changed() {
                    match events.next().await {
                        Some(Ok(event))
                            if event.name.as_ref().is_none_or(|n| names.contains(n)) => {}
                        Some(Ok(_)) => continue,
                        _ => return sleep(Duration::from_secs(30)).await,
                    }
                }
            }
            Err(_) => sleep(Duration::from_secs(30)).await,
        }
    }

    /// Their directories, watched: files are replaced by renaming, also those behind links.
    fn watched(&self) -> std::io::Result<(Inotify, Vec<OsString>)> {
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVED_TO
            | WatchMask::ATTRIB
            | WatchMask::DELETE;
        let mut names = Vec::new();
        let mut any = false;
        for (path, _) in &self.0 {
            if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
                any |= inotify.watches().add(directory, mask).is_ok();
                names.push(name.to_owned());
            }
        }
        if any {
            Ok((inotify, names))
        } else {
            Err(std::io::ErrorKind::NotFound.into())
        }
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
