//! Streams of one value: sent at once and at each change, without keys, positions or `Synced`.

use std::future::Future;

use futures::Stream;
use futures::stream;
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::podconfig::v1::{
    WatchNodeResponse, WatchObjectResponse, WatchPodCertificateResponse,
};
use polylet_wire::volume::v1::{
    WatchClaimSizesResponse, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

use crate::SILENCE;
use crate::follow::{Backoff, Heard, tell};

/// The response message of a watch method for one value.
pub trait ValueWire: Sized + Send + PartialEq + Clone + 'static {
    /// The stream's name, for health and logs.
    const STREAM: &'static str;
}

impl ValueWire for WatchRuntimeResponse {
    const STREAM: &'static str = "WatchRuntime";
}

impl ValueWire for WatchObjectResponse {
    const STREAM: &'static str = "WatchObject";
}

impl ValueWire for WatchNodeResponse {
    const STREAM: &'static str = "WatchNode";
}

impl ValueWire for WatchPodCertificateResponse {
    const STREAM: &'static str = "WatchPodCertificate";
}

impl ValueWire for WatchDriversResponse {
    const STREAM: &'static str = "WatchDrivers";
}

impl ValueWire for WatchClaimSizesResponse {
    const STREAM: &'static str = "WatchClaimSizes";
}

impl ValueWire for WatchVolumesInUseResponse {
    const STREAM: &'static str = "WatchVolumesInUse";
}

/// What is known of the value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<W> {
    /// The value now.
    Current(W),
    /// The stream is lost, and why; the last value is the last known. Comes once.
    Stale(String),
}

/// Follows a value: reconnects for ever. A value that is the same as before is told again only
/// after `Stale`. Such a stream may rightly be silent for ever, so silence is not loss.
pub fn follow_value<W, O, F>(peer: impl Heard, open: O) -> impl Stream<Item = Value<W>> + Unpin
where
    W: ValueWire,
    O: Fn() -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    let follower = Follower {
        peer,
        open,
        connection: None,
        current: None,
        backoff: Backoff::new(),
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let value = follower.next().await;
        Some((value, follower))
    }))
}

struct Follower<P, O, W> {
    peer: P,
    open: O,
    connection: Option<Streaming<W>>,
    current: Option<W>,
    backoff: Backoff,
}

impl<P, O, F, W> Follower<P, O, W>
where
    P: Heard,
    W: ValueWire,
    O: Fn() -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    async fn next(&mut self) -> Value<W> {
        loop {
            let told = match &mut self.connection {
                Some(connection) => match connection.message().await {
                    Ok(Some(message)) => self.take(message),
                    Ok(None) => self.lose("the server ended the stream"),
                    Err(status) => self.lose(&tell(&status)),
                },
                None => self.connect().await,
            };
            if let Some(value) = told {
                return value;
            }
        }
    }

    async fn connect(&mut self) -> Option<Value<W>> {
        self.backoff.wait().await;
        match timeout(SILENCE, (self.open)()).await {
            Ok(Ok(response)) => {
                self.connection = Some(response.into_inner());
                None
            }
            Ok(Err(status)) => self.lose(&tell(&status)),
            Err(_) => self.lose("the server did not answer"),
        }
    }

    fn take(&mut self, message: W) -> Option<Value<W>> {
        self.backoff.reset();
        self.peer.heard(W::STREAM, "", true);
        if self.current.as_ref() == Some(&message) {
            return None;
        }
        self.current = Some(message.clone());
        Some(Value::Current(message))
    }

    fn lose(&mut self, why: &str) -> Option<Value<W>> {
        self.connection = None;
        self.peer.lost(W::STREAM, why);
        self.current.take().map(|_| Value::Stale(why.to_owned()))
    }
}
