//! Following a server's keyed state across reconnects.

use std::collections::VecDeque;
use std::future::Future;

use futures::Stream;
use futures::stream;
use polylet_wire::known;
use tonic::{Response, Status, Streaming};

use crate::connection::Connection;
use crate::{Change, Position, ReceivedValue, Replica, SILENCE, Update, WatchWire};

/// Is notified of the state of the streams from a peer (the kit's `Peer`, for health and info).
pub trait StreamObserver {
    /// A message of the stream was received from this incarnation of the server.
    fn received(&self, stream: &'static str, incarnation: &str, synced: bool);
    /// The stream was lost, or could not be opened.
    fn lost(&self, stream: &'static str, reason: &str);
    /// The same for a stream of one value. Several may have this name, and its follower may be gone for good.
    fn value_lost(&self, stream: &'static str);
    /// The server sends a value of this field that this build does not know; `None` once it does not
    /// any more. What the value is part of keeps its last known state, and the stream is not synced.
    fn unknown(&self, stream: &'static str, field: Option<&'static str>);
}

/// Follows a stream named after its method. See [`follow_named`].
pub fn follow<W, O, F>(
    peer: impl StreamObserver,
    open: O,
) -> impl Stream<Item = Update<W::Key, W::Item>> + Unpin
where
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    follow_named(peer, W::STREAM, open)
}

/// Follows a stream: reconnects without end and yields the real differences from one connection to
/// the next.
///
/// After each (re)connection come the differences and then `Synced`; when the stream is lost after
/// that, `Stale` comes once. A consumer keeps a plain map and never starts from nothing again.
/// `stream` distinguishes several streams of one method, such as the pods of each source.
/// Dropping a pending `next()` loses nothing.
pub fn follow_named<W, O, F>(
    peer: impl StreamObserver,
    stream: &'static str,
    open: O,
) -> impl Stream<Item = Update<W::Key, W::Item>> + Unpin
where
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    let follower = KeyedFollower {
        peer,
        stream,
        open,
        replica: Replica::new(),
        queue: VecDeque::new(),
        connection: Connection::new(),
        incarnation: String::new(),
        unknown: None,
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let update = follower.next().await;
        Some((update, follower))
    }))
}

struct KeyedFollower<P, O, W: WatchWire> {
    peer: P,
    stream: &'static str,
    open: O,
    replica: Replica<W::Key, W::Item>,
    queue: VecDeque<Update<W::Key, ReceivedValue<W::Item>>>,
    connection: Connection<W>,
    incarnation: String,
    /// The field that was unknown last, as long as something is.
    unknown: Option<&'static str>,
}

impl<P, O, F, W> KeyedFollower<P, O, W>
where
    P: StreamObserver,
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    async fn next(&mut self) -> Update<W::Key, W::Item> {
        loop {
            if !self.queue.is_empty() {
                // A snapshot is one batch, and each update may be much work for the consumer: other
                // tasks run in between, the watchdog and health first.
                tokio::task::yield_now().await;
            }
            if let Some(update) = self.queue.pop_front() {
                return update.map(ReceivedValue::into_value);
            }
            let position = self.replica.position();
            let open = || (self.open)(position.cloned());
            match self.connection.next(open, Some(SILENCE)).await {
                Ok(message) => self.handle_message(message),
                Err(reason) => self.handle_loss(&reason),
            }
        }
    }

    fn handle_message(&mut self, message: W) {
        let unknown = message.unknown();
        match (message.into_change(), unknown) {
            // The removal of what this build does not know is a removal.
            (Some(Change::Remove(key)), _) => self.apply(Change::Remove(key)),
            (Some(change), None) => self.apply(change),
            (change, Some(field)) => {
                let key = match &change {
                    Some(Change::Upsert(item)) => Some(W::key(item)),
                    _ => None,
                };
                self.unknown = Some(field);
                let stale = self.replica.apply_unknown(key, || known::message(field));
                self.queue.extend(stale);
            }
            (None, None) => {
                tracing::debug!(stream = self.stream, "ignoring a message without a key");
                return;
            }
        }
        let unknown = self.unknown.filter(|_| self.replica.has_unknown());
        if unknown.is_some() || self.unknown.take().is_some() {
            self.peer.unknown(self.stream, unknown);
        }
        self.peer
            .received(self.stream, &self.incarnation, self.replica.is_synced());
    }

    fn apply(&mut self, change: Change<W::Key, W::Item>) {
        if let Change::Synced(position) = &change {
            self.incarnation.clone_from(&position.incarnation);
        }
        let change = match change {
            Change::Upsert(item) => Change::Upsert(W::detach(item)),
            other => other,
        };
        self.replica.apply(change, W::key, &mut self.queue);
    }

    fn handle_loss(&mut self, reason: &str) {
        self.peer.lost(self.stream, reason);
        self.queue
            .extend(self.replica.disconnect(|| reason.to_owned()));
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
