//! Following a server's log across reconnects.

use std::future::Future;

use futures::{Stream, stream};
use tonic::{Response, Status, Streaming};

use crate::connection::Connection;
use crate::{Change, Position, SILENCE, StreamObserver, WatchWire};

/// Follows the stream of an [`crate::AppendLog`], named after its method: reconnects without end and yields
/// each message, in order. Some come twice when the server or the connection was lost.
///
/// Messages with a value that this build does not know are left out, which the observer is told until the
/// connection ends. Dropping a pending `next()` loses nothing.
pub fn follow_log<W, O, F>(
    peer: impl StreamObserver,
    open: O,
) -> impl Stream<Item = W::Item> + Unpin
where
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    let follower = LogFollower {
        peer,
        open,
        connection: Connection::new(),
        position: None,
        synced: false,
        unknown: false,
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await;
        Some((item, follower))
    }))
}

struct LogFollower<P, O, W> {
    peer: P,
    open: O,
    connection: Connection<W>,
    position: Option<Position>,
    /// Whether all that the server had when it was connected has been received.
    synced: bool,
    /// The server has sent what this build does not know.
    unknown: bool,
}

impl<P, O, F, W> LogFollower<P, O, W>
where
    P: StreamObserver,
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    async fn next(&mut self) -> W::Item {
        loop {
            let open = || (self.open)(self.position.clone());
            match self.connection.next(open, Some(SILENCE)).await {
                Ok(message) => {
                    if let Some(item) = self.handle_message(message) {
                        return item;
                    }
                }
                Err(reason) => self.handle_loss(&reason),
            }
        }
    }

    fn handle_message(&mut self, message: W) -> Option<W::Item> {
        if let Some(field) = message.unknown() {
            self.unknown = true;
            self.peer.unknown(W::STREAM, Some(field));
            return None;
        }
        let item = match message.into_change() {
            Some(Change::Upsert(item)) => Some(W::detach(item)),
            Some(Change::Synced(position)) => {
                self.position = Some(position);
                self.synced = true;
                None
            }
            // What was received stays received.
            Some(Change::Reset | Change::Remove(_)) | None => None,
        };
        let position = self.position.as_ref();
        let incarnation = position.map_or("", |position| &position.incarnation);
        self.peer.received(W::STREAM, incarnation, self.synced);
        item
    }

    fn handle_loss(&mut self, reason: &str) {
        self.synced = false;
        if std::mem::take(&mut self.unknown) {
            self.peer.unknown(W::STREAM, None);
        }
        self.peer.lost(W::STREAM, reason);
    }
}

#[cfg(test)]
#[path = "follow_log_tests.rs"]
mod tests;
