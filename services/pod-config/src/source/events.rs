//! What inotify tells of the manifest directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures::{FutureExt, StreamExt};
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A writer is done with this file, or it came complete.
    Done(PathBuf),
    /// Its mode or owner has changed.
    Touched(PathBuf),
    /// It is being written.
    Writing(PathBuf),
    /// It may be gone.
    Vanished(PathBuf),
    /// Anything may have changed; look at everything.
    Anything,
    /// What is watched is no longer what should be.
    Lost,
}

/// A watch on the directory, or on the parent of what is no directory (yet).
pub(super) struct Events {
    stream: EventStream<[u8; 4096]>,
    root: PathBuf,
    watched: PathBuf,
    only: Option<OsString>,
}

impl Events {
    /// Starts to watch.
    pub(super) fn watch(root: &Path) -> std::io::Result<Events> {
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
        Ok(Events {
            stream,
            root: root.to_owned(),
            watched,
            only,
        })
    }

    /// Everything that has happened, as soon as something has.
    pub(super) async fn next(&mut self) -> Vec<Event> {
        let mut told = Vec::new();
        let mut next = self.stream.next().await;
        loop {
            match next {
                Some(Ok(event)) => told.extend(self.told(event.mask, event.name.as_deref())),
                Some(Err(_)) | None => told.push(Event::Lost),
            }
            match self.stream.next().now_or_never() {
                Some(more) if !told.contains(&Event::Lost) => next = more,
                _ => return told,
            }
        }
    }

    fn told(&self, mask: EventMask, name: Option<&OsStr>) -> Option<Event> {
        if mask.contains(EventMask::Q_OVERFLOW) {
            return Some(Event::Anything);
        }
        let Some(name) = name else {
            let lost = EventMask::DELETE_SELF
                | EventMask::MOVE_SELF
                | EventMask::UNMOUNT
                | EventMask::IGNORED;
            return mask.intersects(lost).then_some(Event::Lost);
        };
        if let Some(only) = &self.only {
            if name != only {
                return None;
            }
            if self.root.is_dir() {
                return Some(Event::Lost);
            }
        } else if name.as_encoded_bytes().starts_with(b".") {
            // Published by swapping a hidden link, as Kubernetes itself does (..data).
            let swapped = name.as_encoded_bytes().starts_with(b"..")
                && mask.intersects(EventMask::MOVED_TO | EventMask::CREATE);
            return swapped.then_some(Event::Anything);
        }
        let path = self.path(name);
        Some(
            if mask.intersects(EventMask::MOVED_FROM | EventMask::DELETE) {
                Event::Vanished(path)
            } else if mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO) {
                Event::Done(path)
            } else if mask.contains(EventMask::CREATE) {
                created(path)
            } else if mask.contains(EventMask::ATTRIB) {
                Event::Touched(path)
            } else {
                Event::Writing(path)
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

/// A new plain file is closed by its writer later on; links and the like are complete at once.
fn created(path: PathBuf) -> Event {
    match std::fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.nlink() == 1 => Event::Writing(path),
        _ => Event::Done(path),
    }
}
