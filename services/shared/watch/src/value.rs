//! Streams of a single value: sent on connect and on each change, without keys, positions or
//! `Synced`.

use std::future::Future;

use futures::Stream;
use futures::stream;
use polylet_wire::known::{self, Known};
use polylet_wire::pleg::v1::WatchRuntimeResponse;
use polylet_wire::podconfig::v1::{
    WatchNodeResponse, WatchObjectResponse, WatchPodCertificateResponse,
};
use polylet_wire::volume::v1::{
    WatchClaimSizesResponse, WatchDriversResponse, WatchVolumesInUseResponse,
};
use tonic::{Response, Status, Streaming};

use crate::StreamObserver;
use crate::connection::Connection;

/// The response message of a watch method for one value.
pub trait ValueWire: Known + Sized + Send + PartialEq + Clone + 'static {
    /// Name of the stream in health and logs.
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

/// The value, or the loss of its stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<W> {
    /// The current value.
    Current(W),
    /// The stream was lost, with the reason; the last value is the last known one. Comes once.
    Stale(String),
}

/// Follows a value: reconnects without end. An unchanged value is repeated only after `Stale`. Such
/// a stream may be silent for any time, so silence is not loss.
pub fn follow_value<W, O, F>(
    peer: impl StreamObserver,
    open: O,
) -> impl Stream<Item = Value<W>> + Unpin
where
    W: ValueWire,
    O: Fn() -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    let follower = ValueFollower {
        peer,
        open,
        connection: Connection::new(),
        current: None,
        unknown: false,
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let value = follower.next().await;
        Some((value, follower))
    }))
}

struct ValueFollower<P, O, W> {
    peer: P,
    open: O,
    connection: Connection<W>,
    current: Option<W>,
    /// The last message had a value that this build does not know.
    unknown: bool,
}

impl<P, O, F, W> ValueFollower<P, O, W>
where
    P: StreamObserver,
    W: ValueWire,
    O: Fn() -> F,
    F: Future<Output = Result<Response<Streaming<W>>, Status>>,
{
    async fn next(&mut self) -> Value<W> {
        loop {
            let value = match self.connection.next(&self.open, None).await {
                Ok(message) => self.handle_message(message),
                Err(reason) => self.handle_loss(reason),
            };
            if let Some(value) = value {
                return value;
            }
        }
    }

    fn handle_message(&mut self, message: W) -> Option<Value<W>> {
        let unknown = message.unknown();
        if unknown.is_some() || self.unknown {
            self.unknown = unknown.is_some();
            self.peer.unknown(W::STREAM, unknown);
        }
        if let Some(field) = unknown {
            // It is not what an unset field would mean: nothing is known but the last value.
            let reason = known::message(field);
            self.peer.value_lost(W::STREAM);
            return self.current.take().map(|_| Value::Stale(reason));
        }
        self.peer.received(W::STREAM, "", true);
        if self.current.as_ref() == Some(&message) {
            return None;
        }
        self.current = Some(message.clone());
        Some(Value::Current(message))
    }

    fn handle_loss(&mut self, reason: String) -> Option<Value<W>> {
        self.peer.value_lost(W::STREAM);
        self.current.take().map(|_| Value::Stale(reason))
    }
}

#[cfg(test)]
mod tests {
    use polylet_wire::podconfig::v1::Absent;
    use polylet_wire::podconfig::v1::watch_node_response::State;

    use super::*;

    struct NoObserver;

    impl StreamObserver for NoObserver {
        fn received(&self, _: &'static str, _: &str, _: bool) {}
        fn lost(&self, _: &'static str, _: &str) {}
        fn value_lost(&self, _: &'static str) {}
        fn unknown(&self, _: &'static str, _: Option<&'static str>) {}
    }

    #[test]
    fn a_state_of_unknown_kind_is_not_absence() {
        type Opened = Result<Response<Streaming<WatchNodeResponse>>, Status>;
        let mut follower = ValueFollower {
            peer: NoObserver,
            open: std::future::pending::<Opened>,
            connection: Connection::new(),
            current: None,
            unknown: false,
        };
        let absent = WatchNodeResponse {
            state: Some(State::Absent(Absent {})),
            ..WatchNodeResponse::default()
        };
        let unknown = WatchNodeResponse::default();
        let current = Some(Value::Current(absent.clone()));
        assert_eq!(follower.handle_message(unknown.clone()), None);
        assert_eq!(follower.handle_message(absent.clone()), current);
        let stale = follower.handle_message(unknown.clone());
        assert!(matches!(stale, Some(Value::Stale(_))), "{stale:?}");
        assert_eq!(follower.handle_message(unknown), None);
        assert_eq!(follower.handle_message(absent), current);
    }
}
