//! A store as the stream of a server method.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::log::{Batch, Step};
use crate::{Change, IDLE, Position, Store, WatchWire};

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
        at: resume_after,
        queue: VecDeque::new(),
        synced: false,
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
    at: Option<Position>,
    queue: VecDeque<Queued<W::Key, W::Item>>,
    /// The watcher was told `Synced` at least once.
    synced: bool,
}

/// A message to come; values are shared with the store until they are sent.
enum Queued<K, V> {
    Reset,
    Step(Step<K, V>),
    Synced(Position),
}

impl<W: WatchWire> Watcher<W> {
    async fn next(&mut self) -> W {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return W::wrap(match message {
                    Queued::Reset => Change::Reset,
                    Queued::Step(Step::Upsert(item)) => Change::Upsert(Arc::unwrap_or_clone(item)),
                    Queued::Step(Step::Remove(key)) => Change::Remove(key),
                    Queued::Synced(position) => Change::Synced(position),
                });
            }
            self.changed.borrow_and_update();
            self.refill();
            if !self.queue.is_empty() {
                continue;
            }
            let waited = timeout(IDLE, self.changed.changed()).await;
            if let (Err(_), true, Some(position)) = (waited, self.synced, &self.at) {
                self.queue.push_back(Queued::Synced(position.clone()));
            }
        }
    }

    fn refill(&mut self) {
        let position = match self.store.next(self.at.as_ref()) {
            // A watcher that resumes where the store stands has to hear that it does.
            Batch::Nothing if !self.synced && self.store.is_whole() => self.store.position(),
            Batch::Nothing => return,
            Batch::Snapshot(all, position) => {
                self.queue.push_back(Queued::Reset);
                self.queue.extend(
                    all.into_iter()
                        .map(|(_, item)| Queued::Step(Step::Upsert(item))),
                );
                position
            }
            Batch::Changes(steps, position) => {
                self.queue
                    .extend(steps.into_iter().map(|(_, step)| Queued::Step(step)));
                position
            }
        };
        self.queue.push_back(Queued::Synced(position.clone()));
        self.at = Some(position);
        self.synced = true;
    }
}
