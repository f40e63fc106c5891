//! A bounded log of messages that never change, shared between its owner and the streams that serve it.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::pulse::until_heartbeat;
use crate::{ByteBlocks, Change, Position};

/// The latest messages of a service, numbered from one in the order in which they were added. Clones share
/// them.
///
/// Unlike a [`crate::Store`] it has no keys: each message is sent to a watcher once.
pub struct AppendLog<M> {
    shared: Arc<SharedLog>,
    message: PhantomData<fn() -> M>,
}

struct SharedLog {
    entries: Mutex<LogEntries>,
    changed: watch::Sender<()>,
}

impl<M> Clone for AppendLog<M> {
    fn clone(&self) -> Self {
        AppendLog {
            shared: Arc::clone(&self.shared),
            message: PhantomData,
        }
    }
}

impl<M: Message + Default + 'static> AppendLog<M> {
    /// An empty log of this process instance.
    pub fn new(incarnation: &str) -> Self {
        AppendLog {
            shared: Arc::new(SharedLog {
                entries: Mutex::new(LogEntries::new(incarnation)),
                changed: watch::Sender::new(()),
            }),
            message: PhantomData,
        }
    }

    /// Adds a message.
    pub fn push(&self, message: &M) {
        self.entries().push(message);
        self.shared.changed.send_replace(());
    }

    /// Removes the oldest messages.
    pub fn remove_oldest(&self, count: usize) {
        if count > 0 {
            self.entries().remove_oldest(count);
            self.shared.changed.send_replace(());
        }
    }

    /// The messages and their numbers.
    pub fn snapshot(&self) -> Vec<(u64, M)> {
        let entries = self.entries();
        entries.after(0).map(decoded).collect()
    }

    /// The changes for a watcher at the position `resume_after`: what it does not have of the log, then all
    /// that is added and removed. The keys are numbers.
    pub fn serve(
        &self,
        resume_after: Option<Position>,
    ) -> BoxStream<'static, Change<u64, (u64, M)>> {
        let watcher = LogWatch {
            log: self.clone(),
            changed: self.shared.changed.subscribe(),
            cursor: LogCursor::new(resume_after),
            queue: VecDeque::new(),
        };
        stream::unfold(watcher, |mut watcher| async move {
            let change = watcher.next().await;
            Some((change, watcher))
        })
        .boxed()
    }

    fn entries(&self) -> MutexGuard<'_, LogEntries> {
        // Every method leaves the entries consistent before anything of it can panic.
        let entries = self.shared.entries.lock();
        entries.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number and its message.
type LogEntry = (u64, Bytes);

fn decoded<M: Message + Default>((number, bytes): LogEntry) -> (u64, M) {
    // It was encoded here, so this cannot fail.
    (number, M::decode(bytes).unwrap_or_default())
}

struct LogEntries {
    incarnation: String,
    /// The number of the oldest, or of the next one if there are none.
    first: u64,
    encoded: VecDeque<Bytes>,
    blocks: ByteBlocks,
}

impl LogEntries {
    fn new(incarnation: &str) -> Self {
        LogEntries {
            incarnation: incarnation.to_owned(),
            first: 1,
            encoded: VecDeque::new(),
            blocks: ByteBlocks::default(),
        }
    }

    fn push(&mut self, message: &impl Message) {
        let encoded = self.blocks.store(message.encoded_len(), |block| {
            // There is room for it.
            let _ = message.encode(block);
        });
        self.encoded.push_back(encoded);
    }

    fn remove_oldest(&mut self, count: usize) {
        let count = count.min(self.encoded.len());
        self.encoded.drain(..count);
        self.first += count as u64;
        if self.encoded.is_empty() {
            self.encoded = VecDeque::new();
            self.blocks.clear();
        }
    }

    /// The number of the last message that was added.
    fn last(&self) -> u64 {
        self.first + self.encoded.len() as u64 - 1
    }

    /// Those with higher numbers.
    fn after(&self, number: u64) -> impl Iterator<Item = LogEntry> {
        let next = self.first.max(number + 1);
        let skipped = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        let encoded = self.encoded.range(skipped.min(self.encoded.len())..);
        (next..).zip(encoded.cloned())
    }

    fn position(&self) -> Position {
        Position {
            incarnation: self.incarnation.clone(),
            revision: self.last(),
        }
    }
}

/// The position of a watcher in a log.
struct LogCursor {
    resume_after: Option<Position>,
    /// The numbers of the first and the last message that the watcher has; `None` before the first read.
    sent: Option<(u64, u64)>,
    /// It was sent `Synced` at least once.
    synced: bool,
}

impl LogCursor {
    fn new(resume_after: Option<Position>) -> Self {
        LogCursor {
            resume_after,
            sent: None,
            synced: false,
        }
    }

    /// Queues all that the watcher has not been sent, `Synced` last.
    fn refill(&mut self, entries: &LogEntries, queue: &mut VecDeque<Change<u64, LogEntry>>) {
        let last = entries.last();
        let resumed = self.resume_after.take().filter(|position| {
            position.incarnation == entries.incarnation && position.revision <= last
        });
        let (first, sent) = match (self.sent, resumed) {
            (Some(sent), _) => sent,
            (None, Some(position)) => (entries.first, position.revision),
            (None, None) => {
                queue.push_back(Change::Reset);
                (entries.first, entries.first - 1)
            }
        };
        let removed = first..entries.first.min(sent + 1);
        queue.extend(removed.map(Change::Remove));
        queue.extend(entries.after(sent).map(Change::Upsert));
        self.sent = Some((entries.first, last));
        if !queue.is_empty() || !self.synced {
            queue.push_back(Change::Synced(entries.position()));
            self.synced = true;
        }
    }
}

struct LogWatch<M> {
    log: AppendLog<M>,
    changed: watch::Receiver<()>,
    cursor: LogCursor,
    queue: VecDeque<Change<u64, LogEntry>>,
}

impl<M: Message + Default + 'static> LogWatch<M> {
    async fn next(&mut self) -> Change<u64, (u64, M)> {
        let idle = Instant::now() + until_heartbeat();
        loop {
            if let Some(change) = self.queue.pop_front() {
                return change.map(decoded);
            }
            // Marked seen before the log is read: a later change ends the wait below.
            self.changed.borrow_and_update();
            self.cursor.refill(&self.log.entries(), &mut self.queue);
            if self.queue.is_empty() && timeout_at(idle, self.changed.changed()).await.is_err() {
                let position = self.log.entries().position();
                self.queue.push_back(Change::Synced(position));
            }
        }
    }
}

#[cfg(test)]
#[path = "append_log_tests.rs"]
mod tests;
