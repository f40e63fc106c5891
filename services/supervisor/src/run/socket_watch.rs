//! Gives the sockets their names back when someone removes them.
//!
//! A listening socket cannot be bound to a path again, but its file can have a second name. It is in the
//! supervisor's own directory, and the first one is linked to it again as soon as it is missing: neither
//! the service nor its connections notice, and new calls fail for as long as the kernel takes to report
//! the removal.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures::StreamExt;
use inotify::{EventMask, Inotify, WatchMask};

use crate::core::order::SERVICES;

/// The file of a socket, and its second name.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    second: PathBuf,
}

/// The files of all sockets in a directory.
#[derive(Debug)]
pub(super) struct SocketFiles {
    directory: PathBuf,
    files: Vec<SocketFile>,
}

impl SocketFiles {
    /// Gives the sockets of all services and of the supervisor their second names, in `own`. They are open.
    pub(super) fn open(directory: &Path, own: &Path) -> SocketFiles {
        let services = SERVICES.iter().map(|service| service.name);
        let files = services.chain(["supervisor"]).map(|name| SocketFile {
            path: directory.join(format!("{name}.sock")),
            second: own.join(format!("{name}.listener")),
        });
        let mut files: Vec<SocketFile> = files.collect();
        files.retain(|file| match file.link() {
            Ok(()) => true,
            Err(error) => {
                let path = file.path.display();
                tracing::warn!(%path, %error, "socket could not be restored after a removal");
                false
            }
        });
        SocketFiles {
            directory: directory.to_owned(),
            files,
        }
    }

    /// Restores the files until this is dropped.
    pub(super) async fn watch(self) {
        let Err(error) = self.follow().await;
        let directory = self.directory.display();
        let effect = "a removed one is missing until the next start";
        tracing::error!(%directory, %error, effect, "sockets are not watched");
    }

    async fn follow(&self) -> io::Result<Infallible> {
        let inotify = Inotify::init()?;
        let changes = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
        inotify.watches().add(&self.directory, changes)?;
        let mut events = inotify.into_event_stream([0; 1024])?;
        // Removed before the watch began.
        self.restore();
        while let Some(event) = events.next().await {
            if event?.mask.contains(EventMask::IGNORED) {
                break;
            }
            self.restore();
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn restore(&self) {
        for file in &self.files {
            let path = file.path.display();
            match file.restore() {
                Ok(false) => {}
                Ok(true) => tracing::warn!(%path, "socket was removed; restored it"),
                Err(error) => tracing::error!(%path, %error, "removed socket is not restored"),
            }
        }
    }
}

impl SocketFile {
    fn link(&self) -> io::Result<()> {
        // A supervisor that took over the sockets of another one may find a name missing.
        let is_missing = !fs::exists(&self.path)? && fs::exists(&self.second)?;
        if is_missing || is_same(&self.path, &self.second)? {
            return Ok(());
        }
        // Of an earlier supervisor.
        match fs::remove_file(&self.second) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::hard_link(&self.path, &self.second),
        }
    }

    /// Whether the first name was missing, or that of another file.
    fn restore(&self) -> io::Result<bool> {
        if is_same(&self.path, &self.second)? {
            return Ok(false);
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".restored");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::hard_link(&self.second, &new)?,
        }
        fs::rename(&new, &self.path)?;
        Ok(true)
    }
}

/// Whether two paths are names of one file. A missing one is not.
fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let identity = |path: &Path| match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let identity_of_one = identity(one)?;
    Ok(identity_of_one.is_some() && identity_of_one == identity(other)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    use super::*;

    /// Waits until a connection to the path reaches this listener.
    async fn reached(path: &Path, listener: &UnixListener) {
        listener.set_nonblocking(true).unwrap();
        let connected = async {
            loop {
                let client = UnixStream::connect(path);
                if client.is_ok() && listener.accept().is_ok() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let limit = Duration::from_secs(10);
        tokio::time::timeout(limit, connected)
            .await
            .expect("a connection");
    }

    #[tokio::test]
    async fn removed_sockets_lead_to_the_same_listeners_again() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("supervisor");
        fs::create_dir(&own).unwrap();
        let pleg = directory.path().join("pleg.sock");
        let supervisor = directory.path().join("supervisor.sock");
        let listeners = [&pleg, &supervisor].map(|path| UnixListener::bind(path).unwrap());
        let mut open_connection = UnixStream::connect(&pleg).unwrap();
        let (mut accepted, _) = listeners[0].accept().unwrap();
        // The other services have none here.
        let files = SocketFiles::open(directory.path(), &own);
        assert_eq!(files.files.len(), 2);
        let watch = tokio::spawn(files.watch());
        for _ in 0..3 {
            fs::remove_file(&pleg).unwrap();
            reached(&pleg, &listeners[0]).await;
            fs::rename(&supervisor, directory.path().join("elsewhere")).unwrap();
            reached(&supervisor, &listeners[1]).await;
        }
        // Another file in its place.
        fs::write(directory.path().join("file"), "").unwrap();
        fs::rename(directory.path().join("file"), &pleg).unwrap();
        reached(&pleg, &listeners[0]).await;
        std::io::Write::write_all(&mut open_connection, b"x").unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut accepted, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
        watch.abort();
    }

    #[tokio::test]
    async fn a_removal_before_the_watch_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prober.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let files = SocketFiles::open(directory.path(), directory.path());
        // The second name of an earlier supervisor's socket is replaced.
        drop(SocketFiles::open(directory.path(), directory.path()));
        fs::remove_file(&path).unwrap();
        let watch = tokio::spawn(files.watch());
        reached(&path, &listener).await;
        watch.abort();
    }

    #[test]
    fn second_names_follow_new_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pleg.sock");
        let _first = UnixListener::bind(&path).unwrap();
        SocketFiles::open(directory.path(), directory.path());
        fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        SocketFiles::open(directory.path(), directory.path());
        assert!(is_same(&path, &directory.path().join("pleg.listener")).unwrap());
    }
}
