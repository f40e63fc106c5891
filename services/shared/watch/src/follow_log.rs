//! Following a server's log across reconnects.

use std::future::Future;

use futures::{Stream, stream};
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

use crate::follow::{Reconnect, status_message};
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
        connection: None,
        position: None,
        synced: false,
        unknown: false,
        reconnect: Reconnect::new(),
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await;
        Some((item, follower))
    }))
}

struct LogFollower<P, O, W> {
    peer: P,
    open: O,
    connection: Option<Streaming<W>>,
    position: Option<Position>,
    /// Whether all that the server had when it was connected has been received.
    synced: bool,
    /// The server has sent what this build does not know.
    unknown: bool,
    reconnect: Reconnect,
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
            let Some(connection) = &mut self.connection else {
                self.connect().await;
                continue;
            };
            match timeout(SILENCE, connection.message()).await {
                Ok(Ok(Some(message))) => {
                    if let Some(item) = self.handle_message(message) {
                        return item;
                    }
                }
                Ok(Ok(None)) => self.disconnect("the server ended the stream"),
                Ok(Err(status)) => self.disconnect(&status_message(&status)),
                Err(_) => self.disconnect("no message from the server in time"),
            }
        }
    }

    async fn connect(&mut self) {
        self.reconnect.wait().await;
        let opening = (self.open)(self.position.clone());
        match timeout(SILENCE, opening).await {
            Ok(Ok(response)) => self.connection = Some(response.into_inner()),
            Ok(Err(status)) => self.disconnect(&status_message(&status)),
            Err(_) => self.disconnect("no response from the server in time"),
        }
    }

    fn handle_message(&mut self, message: W) -> Option<W::Item> {
        self.reconnect.reset();
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

    fn disconnect(&mut self, reason: &str) {
        self.connection = None;
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
