//! The published state of one object, shared by its subscribers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long an immutable object that has a subscriber is not requested again: many pods may start with it at once.
const IMMUTABLE_AGE: Duration = Duration::from_secs(10);

/// Published state of an object.
#[derive(Clone, PartialEq)]
pub(crate) enum PublishedObject {
    /// Canonical JSON.
    Manifest(Bytes),
    Absent,
    /// Neither known to exist nor to be absent, with the error.
    Unknown(String),
}

/// Published state, and a way to request the object now.
#[derive(Clone)]
pub(crate) struct ObjectEntry {
    pub(super) state: Arc<watch::Sender<Option<PublishedObject>>>,
    /// Notified when the object is to be requested.
    pub(super) refresh: Arc<Notify>,
    /// When an immutable object was received, which is not watched: it is the published state.
    complete_since: Arc<watch::Sender<Option<Instant>>>,
}

impl ObjectEntry {
    pub(super) fn new() -> ObjectEntry {
        ObjectEntry {
            state: Arc::new(watch::Sender::new(None)),
            refresh: Arc::default(),
            complete_since: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Requests the object for a new subscriber. A state that is not kept current is dropped, so that
    /// the subscriber waits for the response, unless others have just got it.
    pub(super) fn request(&self) {
        let is_used = self.state.receiver_count() > 0;
        let dropped = self.complete_since.send_if_modified(|since| {
            let is_old = since.is_some_and(|since| !is_used || since.elapsed() >= IMMUTABLE_AGE);
            is_old && since.take().is_some()
        });
        if dropped {
            self.state.send_replace(None);
        }
        self.refresh.notify_one();
    }

    /// Sets whether the published state is an immutable object.
    pub(super) fn set_complete(&self, complete: bool) {
        self.complete_since
            .send_replace(complete.then(Instant::now));
    }

    /// Whether the published state is an immutable object.
    pub(super) fn is_complete(&self) -> bool {
        self.complete_since.borrow().is_some()
    }

    /// Waits, while the object is complete, until it is requested again.
    pub(super) async fn wait_for_request(&self) {
        // An earlier notification may be left.
        while self.is_complete() {
            self.refresh.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn immutable_objects_that_are_old_or_unused_are_requested_again() {
        let entry = ObjectEntry::new();
        let publish = || {
            entry.state.send_replace(Some(PublishedObject::Absent));
            entry.set_complete(true);
        };
        publish();
        let used = entry.state.subscribe();
        entry.request();
        assert!(entry.is_complete(), "just received");
        tokio::time::advance(IMMUTABLE_AGE).await;
        entry.request();
        assert!(!entry.is_complete() && used.borrow().is_none());
        publish();
        drop(used);
        entry.request();
        assert!(!entry.is_complete(), "nobody has it");
    }
}
