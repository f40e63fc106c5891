//! A watch stream between two services: the real store and replica, with a slow connection in between
//! that may break and lose messages.

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use polylet_watch::{Change, ReceivedValue, Replica, Store, Update, WatchWire, serve};
use polylet_wire::common::v1::Position;

use crate::rng::Rng;

/// A server's store, with the incarnation of the server.
pub type Served<K, V> = Option<(u32, Store<K, V>)>;

type Messages<W> = BoxStream<'static, Result<W, tonic::Status>>;

/// The client of a stream.
pub struct Link<W: WatchWire> {
    replica: Replica<W::Key, W::Item>,
    connection: Option<(u32, Messages<W>)>,
    wire: VecDeque<W>,
    /// Whether the client has synced since it was started.
    pub has_synced: bool,
    /// Counts as synced at the start of the stream: a deliberate bug.
    pub premature_sync: bool,
    late: u8,
}

impl<W: WatchWire> Default for Link<W> {
    fn default() -> Self {
        Link {
            replica: Replica::new(),
            connection: None,
            wire: VecDeque::new(),
            has_synced: false,
            premature_sync: false,
            late: 12,
        }
    }
}

impl<W: WatchWire> Link<W> {
    /// Whether the client has an item with this key.
    pub fn knows(&self, key: &W::Key) -> bool {
        self.replica.contains(key)
    }

    /// Runs one step of the connection, and returns the updates that the client receives.
    pub fn step(
        &mut self,
        server: &Served<W::Key, W::Item>,
        rng: &mut Rng,
    ) -> Vec<Update<W::Key, W::Item>> {
        let mut updates = Vec::new();
        if self.premature_sync && server.is_some() && self.late > 0 {
            self.late -= 1;
            if !self.has_synced {
                self.wire
                    .push_back(W::from_change(Change::Synced(Position::default())));
                self.read(&mut updates);
            }
            return updates;
        }
        let same = match (&self.connection, server) {
            (Some((incarnation, _)), Some((now, _))) => incarnation == now,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !same {
            // Messages of a dead server may still be read.
            if self.wire.is_empty() || rng.percent(30) {
                self.cut(&mut updates);
            } else {
                self.read(&mut updates);
            }
            return updates;
        }
        match (&mut self.connection, server) {
            (None, Some((incarnation, store))) => {
                let stream = serve::<W>(store.clone(), self.replica.position().cloned());
                self.connection = Some((*incarnation, stream));
            }
            (Some((_, stream)), _) => {
                for _ in 0..=rng.below(4) {
                    if let Some(Some(Ok(message))) = stream.next().now_or_never() {
                        self.wire.push_back(message);
                    }
                }
                for _ in 0..rng.below(6) {
                    self.read(&mut updates);
                }
            }
            (None, None) => {}
        }
        updates
    }

    /// Receives updates: some, or without faults all.
    pub fn receive(
        &mut self,
        server: &Served<W::Key, W::Item>,
        rng: &mut Rng,
        quiescing: bool,
    ) -> Vec<Update<W::Key, W::Item>> {
        if quiescing {
            self.flush(server)
        } else {
            self.step(server, rng)
        }
    }

    /// Receives all updates.
    pub fn flush(&mut self, server: &Served<W::Key, W::Item>) -> Vec<Update<W::Key, W::Item>> {
        let mut updates = Vec::new();
        let is_same = |(incarnation, _): &(u32, Messages<W>)| {
            server.as_ref().is_some_and(|(now, _)| now == incarnation)
        };
        if self.connection.as_ref().is_some_and(|c| !is_same(c)) {
            self.cut(&mut updates);
        }
        let Some((incarnation, store)) = server else {
            return updates;
        };
        let at = self.replica.position().cloned();
        let (_, stream) = self
            .connection
            .get_or_insert_with(|| (*incarnation, serve::<W>(store.clone(), at)));
        while let Some(Some(Ok(message))) = stream.next().now_or_never() {
            self.wire.push_back(message);
        }
        while !self.wire.is_empty() {
            self.read(&mut updates);
        }
        updates
    }

    /// Breaks the connection, and loses the messages in flight.
    pub fn cut(&mut self, updates: &mut Vec<Update<W::Key, W::Item>>) {
        self.connection = None;
        self.wire.clear();
        let lost = self.replica.disconnect(|| "connection broken".to_owned());
        updates.extend(lost.map(|lost| lost.map(ReceivedValue::into_value)));
    }

    fn read(&mut self, updates: &mut Vec<Update<W::Key, W::Item>>) {
        let Some(change) = self.wire.pop_front().and_then(W::into_change) else {
            return;
        };
        let mut received = Vec::new();
        self.replica.apply(change, W::key, &mut received);
        let received = received.into_iter();
        updates.extend(received.map(|update| update.map(ReceivedValue::into_value)));
        self.has_synced |= self.replica.is_synced();
    }
}
