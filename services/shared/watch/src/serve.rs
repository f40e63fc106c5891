//! A store as the stream of a server method.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cursor::{Cursor, Queued};
use crate::{IDLE, Position, Store, WatchWire};

/// The stream for one watcher that stands at `resume_after`.
///
/// Silent until the store is whole; then a snapshot, or the changes since the position; then the
/// changes as they come. A watcher that reads slowly skips steps and gets the latest of each key.
pub fn serve<W: WatchWire>(
    store: Store<W::Key, W::Item>,
    resume_after: Option<Position>,
) -> BoxStream<'static, Result<W, tonic::Status>> {
    let changed = store.changes();
    let watcher = Watcher::<W> {
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

struct Watcher<W: WatchWire> {
    store: Store<W::Key, W::Item>,
    changed: watch::Receiver<()>,
    cursor: Cursor,
    queue: VecDeque<Queued<W::Key, W::Item>>,
}

impl<W: WatchWire> Watcher<W> {
    async fn next(&mut self) -> W {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return W::wrap(message.into_change());
            }
            // Seen before the store is read: a change in between wakes the wait below.
            self.changed.borrow_and_update();
            self.store.refill(&mut self.cursor, &mut self.queue);
            if self.queue.is_empty() && timeout(IDLE, self.changed.changed()).await.is_err() {
                self.queue.extend(self.cursor.idle());
            }
        }
    }
}
