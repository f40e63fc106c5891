//! Watches the directories of logs that are followed.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use inotify::{Event, EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Watches directories for all followers of a process. They share one inotify instance, of which the kernel
/// grants 128 to a user (`fs.inotify.max_user_instances`); there is none while nothing is followed.
#[derive(Clone, Default)]
pub struct LogWatcher(Arc<Mutex<Option<Instance>>>);

struct Instance {
    watches: Watches,
    directories: HashMap<WatchDescriptor, Directory>,
    reading: AbortHandle,
}

struct Directory {
    followers: usize,
    changes: watch::Sender<Change>,
}

/// The last change of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A file of it was written, or appeared.
    Written,
    /// It can no longer be watched.
    Failed(io::ErrorKind),
}

/// A follower's part of a watched directory.
pub(super) struct DirectoryWatch {
    all: LogWatcher,
    descriptor: WatchDescriptor,
    changes: watch::Receiver<Change>,
}

impl DirectoryWatch {
    /// Waits for a change since the last call. False once the directory is gone.
    pub(super) async fn changed(&mut self) -> io::Result<bool> {
        if self.changes.changed().await.is_err() {
            return Ok(false);
        }
        match *self.changes.borrow_and_update() {
            Change::Written => Ok(true),
            Change::Failed(kind) => Err(kind.into()),
        }
    }
}

impl Drop for DirectoryWatch {
    fn drop(&mut self) {
        self.all.with(|slot| {
            let Some(instance) = slot else {
                return;
            };
            if instance.release(&self.descriptor) {
                instance.reading.abort();
                *slot = None;
            }
        });
    }
}

impl LogWatcher {
    /// Watches a directory for a follower.
    pub(super) fn watch(&self, directory: &Path) -> io::Result<DirectoryWatch> {
        let (descriptor, changes) = self.with(|slot| {
            let instance = match slot {
                Some(instance) => instance,
                None => slot.insert(self.start()?),
            };
            let watched = instance.watch(directory);
            if instance.directories.is_empty() {
                instance.reading.abort();
                *slot = None;
            }
            watched
        })?;
        Ok(DirectoryWatch {
            all: self.clone(),
            descriptor,
            changes,
        })
    }

    fn start(&self) -> io::Result<Instance> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream([0; 4096])?;
        let reading = tokio::spawn(self.clone().read(events)).abort_handle();
        Ok(Instance {
            watches,
            directories: HashMap::new(),
            reading,
        })
    }

    async fn read(self, mut events: EventStream<[u8; 4096]>) {
        let failed = loop {
            match events.next().await {
                Some(Ok(event)) => self.with(|slot| {
                    if let Some(instance) = slot {
                        instance.handle(&event);
                    }
                }),
                Some(Err(error)) => break error.kind(),
                None => break io::ErrorKind::UnexpectedEof,
            }
        };
        // The next follower starts anew.
        let ended = self.with(Option::take);
        for directory in ended
            .into_iter()
            .flat_map(|it| it.directories.into_values())
        {
            directory.changes.send_replace(Change::Failed(failed));
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Option<Instance>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Instance {
    fn watch(
        &mut self,
        directory: &Path,
    ) -> io::Result<(WatchDescriptor, watch::Receiver<Change>)> {
        let mask =
            WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
        let descriptor = self.watches.add(directory, mask)?;
        let directory = self
            .directories
            .entry(descriptor.clone())
            .or_insert_with(|| Directory {
                followers: 0,
                changes: watch::Sender::new(Change::Written),
            });
        directory.followers += 1;
        Ok((descriptor, directory.changes.subscribe()))
    }

    /// Ends a follower's part. Whether no directory is watched any more.
    fn release(&mut self, descriptor: &WatchDescriptor) -> bool {
        // That of an earlier instance equals none of this one's.
        if let Some(directory) = self.directories.get_mut(descriptor) {
            directory.followers -= 1;
            if directory.followers == 0 {
                self.directories.remove(descriptor);
                // Fails if the directory has been removed.
                let _ = self.watches.remove(descriptor.clone());
            }
        }
        self.directories.is_empty()
    }

    fn handle(&mut self, event: &Event<std::ffi::OsString>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            for directory in self.directories.values() {
                directory.changes.send_replace(Change::Written);
            }
            return;
        }
        if event.mask.contains(EventMask::IGNORED) {
            // The directory is gone: its followers read what they have open, and end.
            self.directories.remove(&event.wd);
        } else if let Some(directory) = self.directories.get(&event.wd) {
            directory.changes.send_replace(Change::Written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn followers_share_one_instance_while_there_are_any() {
        let all = LogWatcher::default();
        let directories: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        // More than a user may have instances.
        let followers = (0..200).map(|n| all.watch(directories[n % 3].path()).unwrap());
        let mut followers: Vec<DirectoryWatch> = followers.collect();
        assert_eq!(all.with(|it| it.as_ref().unwrap().directories.len()), 3);
        std::fs::write(directories[1].path().join("0.log"), "x").unwrap();
        assert!(followers[1].changed().await.unwrap());
        assert!(followers[199].changed().await.unwrap());
        assert!(!followers[0].changes.has_changed().unwrap());
        followers.truncate(1);
        assert_eq!(all.with(|it| it.as_ref().unwrap().directories.len()), 1);
        followers.clear();
        assert!(all.with(|it| it.is_none()));
        assert!(all.watch(Path::new("/nowhere")).is_err());
        assert!(all.with(|it| it.is_none()));
    }

    #[tokio::test]
    async fn a_removed_directory_ends_its_followers_only() {
        let all = LogWatcher::default();
        let [removed, kept] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut follower = all.watch(removed.path()).unwrap();
        let mut other = all.watch(kept.path()).unwrap();
        removed.close().unwrap();
        while follower.changed().await.unwrap() {}
        drop(follower);
        std::fs::write(kept.path().join("0.log"), "x").unwrap();
        assert!(other.changed().await.unwrap());
    }

    #[tokio::test]
    async fn an_instance_that_fails_tells_its_followers() {
        let all = LogWatcher::default();
        let directory = tempfile::tempdir().unwrap();
        let mut follower = all.watch(directory.path()).unwrap();
        all.with(|slot| {
            let failed = Change::Failed(io::ErrorKind::OutOfMemory);
            let ended = slot.take().unwrap();
            for directory in ended.directories.into_values() {
                directory.changes.send_replace(failed);
            }
        });
        assert_eq!(
            follower.changed().await.unwrap_err().kind(),
            io::ErrorKind::OutOfMemory
        );
        let mut next = all.watch(directory.path()).unwrap();
        // Its descriptor is of another instance, where it may be that of another follower.
        drop(follower);
        std::fs::write(directory.path().join("0.log"), "x").unwrap();
        assert!(next.changed().await.unwrap());
    }
}
