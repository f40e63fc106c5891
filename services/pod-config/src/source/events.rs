//! Inotify events of the manifest directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures::{FutureExt, StreamExt};
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// A change of the manifest directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirectoryEvent {
    /// The file was closed by its writer, or moved into the directory.
    Written(PathBuf),
    /// Mode or owner of the file have changed.
    AttributesChanged(PathBuf),
    /// The file is being written.
    Writing(PathBuf),
    /// The file may have been deleted or moved away.
    Removed(PathBuf),
    /// Events were lost, or name no file.
    RescanRequired,
    /// The watched directory is not the configured one any more.
    WatchLost,
}

/// A watch on the directory, or on its parent while the path is no directory.
pub(super) struct DirectoryEvents {
    stream: EventStream<[u8; 4096]>,
    root: PathBuf,
    watched: PathBuf,
    /// The name in the parent that is of interest.
    only: Option<OsString>,
}

impl DirectoryEvents {
    /// Adds the watch.
    pub(super) fn watch(root: &Path) -> std::io::Result<DirectoryEvents> {
        let (watched, only) = if root.is_dir() {
            (root.to_owned(), None)
        } else {
            let parent = root
                .parent()
                .filter(|p| !p.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            (parent.to_owned(), root.file_name().map(OsStr::to_owned))
        };
        let inotify = Inotify::init()?;
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::ATTRIB
            | WatchMask::CLOSE_WRITE
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        inotify.watches().add(&watched, mask)?;
        let stream = inotify.into_event_stream([0; 4096])?;
        Ok(DirectoryEvents {
            stream,
            root: root.to_owned(),
            watched,
            only,
        })
    }

    /// Waits for events; returns all that are available.
    pub(super) async fn next(&mut self) -> Vec<DirectoryEvent> {
        let mut events = Vec::new();
        let mut next = self.stream.next().await;
        loop {
            match next {
                Some(Ok(event)) => events.extend(self.classify(event.mask, event.name.as_deref())),
                Some(Err(_)) | None => events.push(DirectoryEvent::WatchLost),
            }
            match self.stream.next().now_or_never() {
                Some(more) if !events.contains(&DirectoryEvent::WatchLost) => next = more,
                _ => return events,
            }
        }
    }

    fn classify(&self, mask: EventMask, name: Option<&OsStr>) -> Option<DirectoryEvent> {
        if mask.contains(EventMask::Q_OVERFLOW) {
            return Some(DirectoryEvent::RescanRequired);
        }
        let Some(name) = name else {
            let lost = EventMask::DELETE_SELF
                | EventMask::MOVE_SELF
                | EventMask::UNMOUNT
                | EventMask::IGNORED;
            return mask.intersects(lost).then_some(DirectoryEvent::WatchLost);
        };
        if let Some(only) = &self.only {
            if name != only {
                return None;
            }
            if self.root.is_dir() {
                return Some(DirectoryEvent::WatchLost);
            }
        } else if name.as_encoded_bytes().starts_with(b".") {
            // Kubernetes publishes files of volumes by replacing the hidden link `..data`.
            let replaced = name.as_encoded_bytes().starts_with(b"..")
                && mask.intersects(EventMask::MOVED_TO | EventMask::CREATE);
            return replaced.then_some(DirectoryEvent::RescanRequired);
        }
        let path = self.path(name);
        Some(
            if mask.intersects(EventMask::MOVED_FROM | EventMask::DELETE) {
                DirectoryEvent::Removed(path)
            } else if mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) {
                DirectoryEvent::Written(path)
            } else if mask.contains(EventMask::CREATE) {
                created(path)
            } else if mask.contains(EventMask::ATTRIB) {
                DirectoryEvent::AttributesChanged(path)
            } else {
                DirectoryEvent::Writing(path)
            },
        )
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        if self.only.is_some() {
            self.root.clone()
        } else {
            self.watched.join(name)
        }
    }
}

/// The writer of a new regular file closes it later; links and other files are complete at once.
fn created(path: PathBuf) -> DirectoryEvent {
    match std::fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.nlink() == 1 => DirectoryEvent::Writing(path),
        _ => DirectoryEvent::Written(path),
    }
}
