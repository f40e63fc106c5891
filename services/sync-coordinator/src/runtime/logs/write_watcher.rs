//! Inotify watches that report the next write to a log.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;

use futures::StreamExt;
use inotify::{
    EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches as WatchHandle,
};

/// One-shot watches on logs, by container id.
pub(super) struct WriteWatcher {
    /// `None` without inotify: every log is then polled.
    stream: Option<EventStream<[u8; 4096]>>,
    handle: Option<WatchHandle>,
    ids: BTreeMap<i32, String>,
    watched: BTreeMap<String, WatchDescriptor>,
}

impl WriteWatcher {
    pub(super) fn new() -> Self {
        let opened = Inotify::init().and_then(|inotify| {
            let handle = inotify.watches();
            Ok((inotify.into_event_stream([0; 4096])?, handle))
        });
        let (stream, handle) = match opened {
            Ok((stream, handle)) => (Some(stream), Some(handle)),
            Err(error) => {
                tracing::warn!(%error, "inotify unavailable; polling logs");
                (None, None)
            }
        };
        WriteWatcher {
            stream,
            handle,
            ids: BTreeMap::new(),
            watched: BTreeMap::new(),
        }
    }

    /// Watches for one write; false without a watch.
    pub(super) fn watch(&mut self, id: &str, path: &Path) -> bool {
        let Some(handle) = &mut self.handle else {
            return false;
        };
        let mask = WatchMask::MODIFY | WatchMask::ONESHOT | WatchMask::DONT_FOLLOW;
        match handle.add(path, mask) {
            Ok(watch) => {
                self.ids
                    .insert(watch.get_watch_descriptor_id(), id.to_owned());
                self.watched.insert(id.to_owned(), watch);
                true
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "failed to watch log; polling it");
                false
            }
        }
    }

    /// Removes the watch of a log.
    pub(super) fn unwatch(&mut self, id: &str) {
        let Some(watch) = self.watched.remove(id) else {
            return;
        };
        self.ids.remove(&watch.get_watch_descriptor_id());
        if let Some(handle) = &mut self.handle {
            // It may have fired at this moment, or the file may be gone.
            let _ = handle.remove(watch);
        }
    }

    /// The next container whose log was written; `None` if it may be any.
    pub(super) async fn next_written(&mut self) -> Option<String> {
        loop {
            let Some(stream) = &mut self.stream else {
                return pending().await;
            };
            let event = match stream.next().await {
                Some(Ok(event)) if !event.mask.contains(EventMask::Q_OVERFLOW) => event,
                Some(Ok(_)) => return None,
                Some(Err(_)) | None => {
                    self.stream = None;
                    self.handle = None;
                    return None;
                }
            };
            // The end of a watch is an event as well, after its one shot or with its file.
            if let Some(id) = self.ids.remove(&event.wd.get_watch_descriptor_id()) {
                self.watched.remove(&id);
                return Some(id);
            }
        }
    }
}
