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
pub struct LogWatcher(Arc<Mutex<WatcherState>>);

#[derive(Default)]
struct WatcherState {
    instance: Option<Instance>,
    /// Number of watches that have been given up, by whole instances or one by one.
    removals: u64,
}

struct Instance {
    watches: Watches,
    directories: HashMap<WatchDescriptor, Directory>,
    /// Number of followers whose directory is being added.
    adding: usize,
    reading: AbortHandle,
}

struct Directory {
    followers: usize,
    changes: watch::Sender<DirectoryChange>,
}

/// The last change of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryChange {
    /// A file of it was written, or appeared.
    Written,
    /// It can no longer be watched.
    Failed(io::ErrorKind),
}

/// A follower's part of a watched directory.
pub(super) struct DirectoryWatch {
    watcher: LogWatcher,
    descriptor: WatchDescriptor,
    changes: watch::Receiver<DirectoryChange>,
}

impl DirectoryWatch {
    /// Waits for a change since the last call. False once the directory is gone.
    pub(super) async fn changed(&mut self) -> io::Result<bool> {
        if self.changes.changed().await.is_err() {
            return Ok(false);
        }
        match *self.changes.borrow_and_update() {
            DirectoryChange::Written => Ok(true),
            DirectoryChange::Failed(kind) => Err(kind.into()),
        }
    }
}

impl Drop for DirectoryWatch {
    fn drop(&mut self) {
        self.watcher.with(|state| state.release(&self.descriptor));
    }
}

impl LogWatcher {
    /// Watches a directory for a follower. Blocks as long as its file system does.
    pub(super) fn watch(&self, directory: &Path) -> io::Result<DirectoryWatch> {
        let mask =
            WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::DELETE_SELF;
        loop {
            let (mut watches, removals) = self.with(|state| state.begin(self))?;
            // Not with the lock held, which all followers need.
            let added = watches.add(directory, mask);
            let watched = self.with(|state| state.finish(added, removals))?;
            if let Some((descriptor, changes)) = watched {
                return Ok(DirectoryWatch {
                    watcher: self.clone(),
                    descriptor,
                    changes,
                });
            }
        }
    }

    async fn read(self, mut events: EventStream<[u8; 4096]>) {
        let failed = loop {
            match events.next().await {
                Some(Ok(event)) => self.with(|state| state.handle(&event)),
                Some(Err(error)) => break error.kind(),
                None => break io::ErrorKind::UnexpectedEof,
            }
        };
        self.with(|state| state.fail(failed));
    }

    fn with<T>(&self, work: impl FnOnce(&mut WatcherState) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WatcherState {
    /// The instance to which a directory is to be added, and the number of removals before.
    fn begin(&mut self, watcher: &LogWatcher) -> io::Result<(Watches, u64)> {
        let instance = match &mut self.instance {
            Some(instance) => instance,
            None => self.instance.insert(Instance::start(watcher)?),
        };
        instance.adding += 1;
        Ok((instance.watches.clone(), self.removals))
    }

    /// `None` if the watch may have been removed meanwhile: another follower's end removes that of the same
    /// directory.
    fn finish(
        &mut self,
        added: io::Result<WatchDescriptor>,
        removals: u64,
    ) -> io::Result<Option<(WatchDescriptor, watch::Receiver<DirectoryChange>)>> {
        let is_same = self.removals == removals;
        let Some(instance) = &mut self.instance else {
            return added.map(|_| None);
        };
        instance.adding = instance.adding.saturating_sub(1);
        let subscribed = added.map(|descriptor| {
            is_same.then(|| {
                let changes = instance.subscribe(&descriptor);
                (descriptor, changes)
            })
        });
        self.end_if_unused();
        subscribed
    }

    /// Ends a follower's part.
    fn release(&mut self, descriptor: &WatchDescriptor) {
        let Some(instance) = &mut self.instance else {
            return;
        };
        // That of an earlier instance equals none of this one's.
        if let Some(directory) = instance.directories.get_mut(descriptor) {
            directory.followers -= 1;
            if directory.followers == 0 {
                instance.directories.remove(descriptor);
                // Fails if the directory has been removed.
                let _ = instance.watches.remove(descriptor.clone());
                self.removals += 1;
            }
        }
        self.end_if_unused();
    }

    fn end_if_unused(&mut self) {
        let is_unused = |it: &mut Instance| it.directories.is_empty() && it.adding == 0;
        if let Some(instance) = self.instance.take_if(is_unused) {
            instance.reading.abort();
            self.removals += 1;
        }
    }

    /// The next follower starts anew.
    fn fail(&mut self, failed: io::ErrorKind) {
        self.removals += 1;
        let ended = self.instance.take().into_iter();
        for directory in ended.flat_map(|it| it.directories.into_values()) {
            directory
                .changes
                .send_replace(DirectoryChange::Failed(failed));
        }
    }

    fn handle(&mut self, event: &Event<std::ffi::OsString>) {
        let Some(instance) = &mut self.instance else {
            return;
        };
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            for directory in instance.directories.values() {
                directory.changes.send_replace(DirectoryChange::Written);
            }
        } else if event.mask.contains(EventMask::IGNORED) {
            // The directory is gone: its followers read what they have open, and end.
            instance.directories.remove(&event.wd);
        } else if let Some(directory) = instance.directories.get(&event.wd) {
            directory.changes.send_replace(DirectoryChange::Written);
        }
    }
}

impl Instance {
    fn start(watcher: &LogWatcher) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let events = inotify.into_event_stream([0; 4096])?;
        Ok(Self {
            watches,
            directories: HashMap::new(),
            adding: 0,
            reading: tokio::spawn(watcher.clone().read(events)).abort_handle(),
        })
    }

    fn subscribe(&mut self, descriptor: &WatchDescriptor) -> watch::Receiver<DirectoryChange> {
        let directory = self.directories.entry(descriptor.clone());
        let directory = directory.or_insert_with(|| Directory {
            followers: 0,
            changes: watch::Sender::new(DirectoryChange::Written),
        });
        directory.followers += 1;
        directory.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(watcher: &LogWatcher) -> Option<usize> {
        watcher.with(|state| state.instance.as_ref().map(|it| it.directories.len()))
    }

    #[tokio::test]
    async fn followers_share_one_instance_while_there_are_any() {
        let watcher = LogWatcher::default();
        let watched: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        // More than a user may have instances.
        let followers = (0..200).map(|n| watcher.watch(watched[n % 3].path()).unwrap());
        let mut followers: Vec<DirectoryWatch> = followers.collect();
        assert_eq!(directories(&watcher), Some(3));
        std::fs::write(watched[1].path().join("0.log"), "x").unwrap();
        assert!(followers[1].changed().await.unwrap());
        assert!(followers[199].changed().await.unwrap());
        assert!(!followers[0].changes.has_changed().unwrap());
        followers.truncate(1);
        assert_eq!(directories(&watcher), Some(1));
        followers.clear();
        assert_eq!(directories(&watcher), None);
        assert!(watcher.watch(Path::new("/nowhere")).is_err());
        assert_eq!(directories(&watcher), None);
    }

    #[tokio::test]
    async fn a_removed_directory_ends_its_followers_only() {
        let watcher = LogWatcher::default();
        let [removed, kept] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut follower = watcher.watch(removed.path()).unwrap();
        let mut other = watcher.watch(kept.path()).unwrap();
        removed.close().unwrap();
        while follower.changed().await.unwrap() {}
        drop(follower);
        std::fs::write(kept.path().join("0.log"), "x").unwrap();
        assert!(other.changed().await.unwrap());
    }

    #[tokio::test]
    async fn an_instance_that_fails_tells_its_followers() {
        let watcher = LogWatcher::default();
        let directory = tempfile::tempdir().unwrap();
        let mut follower = watcher.watch(directory.path()).unwrap();
        let kind = io::ErrorKind::OutOfMemory;
        watcher.with(|state| state.fail(kind));
        assert_eq!(follower.changed().await.unwrap_err().kind(), kind);
        let mut next = watcher.watch(directory.path()).unwrap();
        // Its descriptor is of another instance, where it may be that of another follower.
        drop(follower);
        std::fs::write(directory.path().join("0.log"), "x").unwrap();
        assert!(next.changed().await.unwrap());
    }

    #[tokio::test]
    async fn a_watch_that_another_follower_removes_meanwhile_is_added_again() {
        let watcher = LogWatcher::default();
        let directory = tempfile::tempdir().unwrap();
        let other = watcher.watch(directory.path()).unwrap();
        let (mut watches, removals) = watcher.with(|state| state.begin(&watcher)).unwrap();
        let added = watches.add(directory.path(), WatchMask::MODIFY);
        drop(other);
        let watched = watcher.with(|state| state.finish(added, removals));
        assert!(watched.unwrap().is_none());
        assert_eq!(directories(&watcher), None);
    }
}
