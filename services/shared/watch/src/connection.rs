//! A stream that is opened again whenever it is lost.

use std::future::Future;
use std::time::Duration;

use polylet_schedule::Backoff;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Response, Status, Streaming};

use crate::SILENCE;

/// The stream of a follower.
pub(crate) struct Connection<W> {
    stream: Option<Streaming<W>>,
    reconnect: Reconnect,
}

impl<W> Connection<W> {
    pub(crate) fn new() -> Self {
        Connection {
            stream: None,
            reconnect: Reconnect::new(),
        }
    }

    /// The next message of the stream, which is opened first if there is none; silence for longer than
    /// `max_silence` is loss. Dropping it loses nothing.
    ///
    /// # Errors
    /// Why the stream was lost, or could not be opened. The next call opens it again, after a delay.
    pub(crate) async fn next<F>(
        &mut self,
        open: impl FnOnce() -> F,
        max_silence: Option<Duration>,
    ) -> Result<W, String>
    where
        F: Future<Output = Result<Response<Streaming<W>>, Status>>,
    {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                self.reconnect.wait().await;
                let opened = timeout(SILENCE, open()).await;
                let opened = opened.map_err(|_| "no response from the server in time")?;
                let opened = opened.map_err(|status| status_message(&status))?;
                self.stream.insert(opened.into_inner())
            }
        };
        let message = match max_silence {
            Some(silence) => timeout(silence, stream.message()).await,
            None => Ok(stream.message().await),
        };
        let reason = match message {
            Ok(Ok(Some(message))) => {
                self.reconnect.reset();
                return Ok(message);
            }
            Ok(Ok(None)) => "the server ended the stream".to_owned(),
            Ok(Err(status)) => status_message(&status),
            Err(_) => "no message from the server in time".to_owned(),
        };
        self.stream = None;
        Err(reason)
    }
}

/// Code and message of a gRPC status.
fn status_message(status: &Status) -> String {
    format!("{}: {}", status.code().description(), status.message())
}

/// Delays reconnects: none before the first connection, then 50 ms, doubling up to 2 s; back to
/// 50 ms after a message.
struct Reconnect {
    backoff: Backoff,
    /// The end of the present delay; `None` between two.
    due: Option<Instant>,
    delay: Duration,
}

impl Reconnect {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    fn new() -> Self {
        Reconnect {
            backoff: Backoff::new(Self::FIRST, Self::LONGEST),
            due: None,
            delay: Duration::ZERO,
        }
    }

    /// Waits out the delay; the next one is longer. A wait that is dropped and started again ends
    /// when the first one would have.
    async fn wait(&mut self) {
        let due = *self.due.get_or_insert_with(|| Instant::now() + self.delay);
        if !self.delay.is_zero() {
            sleep_until(due).await;
        }
        self.due = None;
        self.delay = self.backoff.next_delay();
    }

    /// A message was received: the next reconnect comes soon.
    fn reset(&mut self) {
        self.backoff.reset();
        self.delay = self.backoff.next_delay();
    }
}
