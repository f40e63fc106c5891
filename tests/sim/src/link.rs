//! One watch stream between two services: the real store and mirror, with a wire in between that is
//! slow, and that breaks with what is on it.

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use polylet_watch::{Change, Mirror, Store, Update, WatchWire, serve};
use polylet_wire::common::v1::Position;

use crate::rng::Rng;

/// A server's store, and which life of the server it belongs to.
pub type Served<K, V> = Option<(u32, Store<K, V>)>;

type Messages<W> = BoxStream<'static, Result<W, tonic::Status>>;

/// One client's end.
pub struct Link<W: WatchWire> {
    mirror: Mirror<W::Key, W::Item>,
    connection: Option<(u32, Messages<W>)>,
    wire: VecDeque<W>,
    /// Synced at least once since the client was born.
    pub heard: bool,
    /// Takes a stream's beginning for all of it: a bug, put in by hand.
    pub synced_too_soon: bool,
    late: u8,
}

impl<W: WatchWire> Default for Link<W> {
    fn default() -> Self {
        Link {
            mirror: Mirror::new(),
            connection: None,
            wire: VecDeque::new(),
            heard: false,
            synced_too_soon: false,
            late: 12,
        }
    }
}

impl<W: WatchWire> Link<W> {
    /// Whether the client holds something under this key.
    pub fn knows(&self, key: &W::Key) -> bool {
        self.mirror.knows(key)
    }

    /// Something happens on the link; gives what the client hears of it.
    pub fn step(
        &mut self,
        server: &Served<W::Key, W::Item>,
        rng: &mut Rng,
    ) -> Vec<Update<W::Key, W::Item>> {
        let mut told = Vec::new();
        if self.synced_too_soon && server.is_some() && self.late > 0 {
            self.late -= 1;
            if !self.heard {
                self.wire
                    .push_back(W::wrap(Change::Synced(Position::default())));
                self.read(&mut told);
            }
            return told;
        }
        let same = match (&self.connection, server) {
            (Some((life, _)), Some((now, _))) => life == now,
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !same {
            // Of what is on the wire of a dead server some may still be read.
            if self.wire.is_empty() || rng.percent(30) {
                self.cut(&mut told);
            } else {
                self.read(&mut told);
            }
            return told;
        }
        match (&mut self.connection, server) {
            (None, Some((life, store))) => {
                let stream = serve::<W>(store.clone(), self.mirror.position().cloned());
                self.connection = Some((*life, stream));
            }
            (Some((_, stream)), _) => {
                for _ in 0..=rng.below(4) {
                    if let Some(Some(Ok(message))) = stream.next().now_or_never() {
                        self.wire.push_back(message);
                    }
                }
                for _ in 0..rng.below(6) {
                    self.read(&mut told);
                }
            }
            (None, None) => {}
        }
        told
    }

    /// What the client hears now: something, or when all is calm everything.
    pub fn hear(
        &mut self,
        server: &Served<W::Key, W::Item>,
        rng: &mut Rng,
        calm: bool,
    ) -> Vec<Update<W::Key, W::Item>> {
        if calm {
            self.flush(server)
        } else {
            self.step(server, rng)
        }
    }

    /// Everything that there is to hear is heard.
    pub fn flush(&mut self, server: &Served<W::Key, W::Item>) -> Vec<Update<W::Key, W::Item>> {
        let mut told = Vec::new();
        let alive =
            |(life, _): &(u32, Messages<W>)| server.as_ref().is_some_and(|(now, _)| now == life);
        if self.connection.as_ref().is_some_and(|c| !alive(c)) {
            self.cut(&mut told);
        }
        let Some((life, store)) = server else {
            return told;
        };
        let at = self.mirror.position().cloned();
        let (_, stream) = self
            .connection
            .get_or_insert_with(|| (*life, serve::<W>(store.clone(), at)));
        while let Some(Some(Ok(message))) = stream.next().now_or_never() {
            self.wire.push_back(message);
        }
        while !self.wire.is_empty() {
            self.read(&mut told);
        }
        told
    }

    /// The connection breaks; what was on the wire is lost.
    pub fn cut(&mut self, told: &mut Vec<Update<W::Key, W::Item>>) {
        self.connection = None;
        self.wire.clear();
        told.extend(self.mirror.lost(|| "the connection broke".to_owned()));
    }

    fn read(&mut self, told: &mut Vec<Update<W::Key, W::Item>>) {
        let Some(change) = self.wire.pop_front().and_then(W::unwrap) else {
            return;
        };
        self.mirror.apply(change, W::key, told);
        self.heard |= self.mirror.is_synced();
    }
}
