//! A store as the stream of a server method.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cursor::{Cursor, Queued};
use crate::{IDLE, Position, Store, WatchWire};

/// The stream for a watcher at the position `resume_after`.
///
/// Silent until the store is synced; then a snapshot, or the changes since the position; then further
/// changes. A slow watcher skips intermediate changes and gets the latest state of each key.
pub fn serve<W: WatchWire>(
    store: Store<W::Key, W::Item>,
    resume_after: Option<Position>,
) -> BoxStream<'static, Result<W, tonic::Status>> {
    let changed = store.changes();
    let watcher = WatchStream::<W> {
        store,
        changed,
        cursor: Cursor::new(resume_after),
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
    cursor: Cursor,
    queue: VecDeque<Queued<W::Key, W::Item>>,
}

impl<W: WatchWire> WatchStream<W> {
    async fn next(&mut self) -> W {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return W::from_change(message.into_change());
            }
            // Marked seen before the store is read: a later change ends the wait below.
            self.changed.borrow_and_update();
            self.store.refill(&mut self.cursor, &mut self.queue);
            if self.queue.is_empty() && timeout(IDLE, self.changed.changed()).await.is_err() {
                self.queue.extend(self.cursor.idle());
            }
        }
    }
}
