//! A store as the stream of a server method.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::cursor::{Cursor, Queued};
use crate::pulse::until_heartbeat;
use crate::{Position, Store, StoreItem, WatchWire};

/// The stream for a watcher at the position `resume_after`.
///
/// Silent until the store is synced; then a snapshot, or the changes since the position; then further
/// changes. A slow watcher skips intermediate changes and gets the latest state of each key.
pub fn serve<W: WatchWire>(
    store: Store<W::Key, W::Item>,
    resume_after: Option<Position>,
) -> BoxStream<'static, Result<W, tonic::Status>> {
    stream_from(store, Cursor::new(resume_after))
}

/// The same for a watcher of one key: changes of other keys are not sent. Without the key, the snapshot
/// is empty.
pub fn serve_key<W: WatchWire>(
    store: Store<W::Key, W::Item>,
    key: W::Key,
    resume_after: Option<Position>,
) -> BoxStream<'static, Result<W, tonic::Status>> {
    stream_from(store, Cursor::for_key(key, resume_after))
}

fn stream_from<W: WatchWire>(
    store: Store<W::Key, W::Item>,
    cursor: Cursor<W::Key>,
) -> BoxStream<'static, Result<W, tonic::Status>> {
    let changed = store.changes();
    let watcher = WatchStream::<W> {
        store,
        changed,
        cursor,
        queue: VecDeque::new(),
    };
    stream::unfold(watcher, |mut watcher| async move {
        let message = watcher.next().await;
        Some((Ok(message), watcher))
    })
    .boxed()
}

struct WatchStream<W: WatchWire> {
    store: Store<W::Key, W::Item>,
    changed: watch::Receiver<()>,
    cursor: Cursor<W::Key>,
    queue: VecDeque<Queued<W::Key, <W::Item as StoreItem>::Kept>>,
}

impl<W: WatchWire> WatchStream<W> {
    async fn next(&mut self) -> W {
        // Changes that are not sent to this watcher must not postpone it.
        let idle = Instant::now() + until_heartbeat();
        loop {
            if let Some(message) = self.queue.pop_front() {
                return W::from_change(message.into_change().map(W::Item::restore));
            }
            // Marked seen before the store is read: a later change ends the wait below.
            self.changed.borrow_and_update();
            self.store.refill(&mut self.cursor, &mut self.queue);
            if self.queue.is_empty() && timeout_at(idle, self.changed.changed()).await.is_err() {
                match self.cursor.idle() {
                    Some(message) => self.queue.push_back(message),
                    // Not synced yet. The store outlives the stream, so that its end is no case.
                    None => drop(self.changed.changed().await),
                }
            }
        }
    }
}
