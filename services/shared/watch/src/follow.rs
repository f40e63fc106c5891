//! A server's state, followed for ever.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use futures::Stream;
use futures::stream;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Response, Status, Streaming};

use crate::{Change, Mirror, Position, SILENCE, Update, WatchWire};

/// Who wants to know how the streams from a peer stand (the kit's `Peer`, for health and info).
pub trait Heard {
    /// A message of the stream came from this life of the server.
    fn heard(&self, stream: &'static str, incarnation: &str, synced: bool);
    /// The stream was lost, or could not be opened.
    fn lost(&self, stream: &'static str, why: &str);
}

/// Follows a stream by the name of its method. See [`follow_named`].
pub fn follow<W, O, F>(
    peer: impl Heard,
    open: O,
) -> impl Stream<Item = Update<W::Key, W::Item>> + Unpin
where
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    follow_named(peer, W::STREAM, open)
}

/// Follows a stream: reconnects for ever, and tells real differences against what was told before.
///
/// After each (re)connection come the differences and then `Synced`; when the stream is lost after
/// that, `Stale` comes once. A consumer keeps a plain map and is never sent back to nothing.
/// `stream` tells several streams of one method apart, such as the sources of pods.
/// Dropping a `next()` that is under way loses nothing.
pub fn follow_named<W, O, F>(
    peer: impl Heard,
    stream: &'static str,
    open: O,
) -> impl Stream<Item = Update<W::Key, W::Item>> + Unpin
where
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    let follower = Follower {
        peer,
        stream,
        open,
        mirror: Mirror::new(),
        queue: VecDeque::new(),
        connection: None,
        incarnation: String::new(),
        backoff: Backoff::new(),
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let update = follower.next().await;
        Some((update, follower))
    }))
}

struct Follower<P, O, W: WatchWire> {
    peer: P,
    stream: &'static str,
    open: O,
    mirror: Mirror<W::Key, W::Item>,
    queue: VecDeque<Update<W::Key, W::Item>>,
    connection: Option<Streaming<W>>,
    incarnation: String,
    backoff: Backoff,
}

impl<P, O, F, W> Follower<P, O, W>
where
    P: Heard,
    W: WatchWire,
    O: Fn(Option<Position>) -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    async fn next(&mut self) -> Update<W::Key, W::Item> {
        loop {
            if !self.queue.is_empty() {
                // A snapshot is one batch, and each update may be much work for whoever hears it: in
                // between others get their turn, those first who say that this process lives.
                tokio::task::yield_now().await;
            }
            if let Some(update) = self.queue.pop_front() {
                return update;
            }
            match &mut self.connection {
                Some(connection) => match timeout(SILENCE, connection.message()).await {
                    Ok(Ok(Some(message))) => self.take(message),
                    Ok(Ok(None)) => self.lose("the server ended the stream"),
                    Ok(Err(status)) => self.lose(&tell(&status)),
                    Err(_) => self.lose("the server was silent for too long"),
                },
                None => self.connect().await,
            }
        }
    }

    async fn connect(&mut self) {
        self.backoff.wait().await;
        let opening = (self.open)(self.mirror.position().cloned());
        match timeout(SILENCE, opening).await {
            Ok(Ok(response)) => self.connection = Some(response.into_inner()),
            Ok(Err(status)) => self.lose(&tell(&status)),
            Err(_) => self.lose("the server did not answer"),
        }
    }

    fn take(&mut self, message: W) {
        self.backoff.reset();
        let Some(change) = message.unwrap() else {
            tracing::debug!(
                stream = self.stream,
                "a message of the stream is of an unknown kind"
            );
            return;
        };
        if let Change::Synced(position) = &change {
            self.incarnation.clone_from(&position.incarnation);
        }
        let change = match change {
            Change::Upsert(item) => Change::Upsert(W::apart(item)),
            other => other,
        };
        self.mirror.apply(change, W::key, &mut self.queue);
        self.peer
            .heard(self.stream, &self.incarnation, self.mirror.is_synced());
    }

    fn lose(&mut self, why: &str) {
        self.connection = None;
        self.peer.lost(self.stream, why);
        self.queue.extend(self.mirror.lost(|| why.to_owned()));
    }
}

/// A status in words.
pub(crate) fn tell(status: &Status) -> String {
    format!("{}: {}", status.code().description(), status.message())
}

/// First at once, then 50 ms, doubling up to 2 s; back to the start when something was heard.
pub(crate) struct Backoff {
    pause: Duration,
    due: Option<Instant>,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(crate) fn new() -> Self {
        Backoff {
            pause: Duration::ZERO,
            due: None,
        }
    }

    /// Waits out the pause; the next one is longer. A wait that is dropped and begun again ends when
    /// the first one would have.
    pub(crate) async fn wait(&mut self) {
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.pause);
        if !self.pause.is_zero() {
            sleep_until(due).await;
        }
        self.due = None;
        self.pause = (self.pause * 2).clamp(Self::FIRST, Self::LONGEST);
    }

    /// Something was heard: the next loss is answered soon.
    pub(crate) fn reset(&mut self) {
        self.pause = Self::FIRST;
    }
}
