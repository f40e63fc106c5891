//! The client side of a link to a peer: one lazily made, ever reconnecting HTTP/2 connection over
//! the peer's socket, a deadline on every call that is not a stream, and the trace context of
//! whoever calls.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::transport::{Endpoint, Uri};
use tower_service::Service;

use crate::BoxError;
use crate::cause;

/// The largest message that is taken from a peer, in bytes. A pod, a ConfigMap or a Secret can have
/// 1.5 MiB in the cluster's store, several times that as JSON, and some messages hold more than one
/// manifest; lists hold all pods of a node. Peers are ours, so this guards against nonsense alone.
pub const LARGEST_MESSAGE: usize = 1 << 30;

/// The deadline of a call that names none.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// A connector tries this long before it reports why it failed. A peer that is just starting by
/// hand gets this much; under a service manager the socket is always there.
const CONNECT_FOR: Duration = Duration::from_secs(1);

/// The transport of a generated client: `PlegServiceClient::new(peer.channel())`.
#[derive(Clone)]
pub struct Channel {
    name: &'static str,
    inner: tonic::transport::Channel,
    /// Set once a stream of the peer is asked for.
    watched: Arc<AtomicBool>,
}

impl Channel {
    pub(crate) fn new(name: &'static str, socket: &Path, watched: Arc<AtomicBool>) -> Channel {
        Channel {
            name,
            inner: plain(socket),
            watched,
        }
    }
}

/// A bare transport over a Unix socket, without deadlines or traces. Needs a tokio runtime.
pub fn plain(socket: &Path) -> tonic::transport::Channel {
    trying_for(socket, CONNECT_FOR)
}

/// The same, with a connector that tries no longer than `patience`.
pub(crate) fn trying_for(socket: &Path, patience: Duration) -> tonic::transport::Channel {
    let socket: PathBuf = socket.to_owned();
    // The address is only the :authority of the requests; the connector knows the way.
    Endpoint::from_static("http://localhost")
        .buffer_size(64)
        .connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { connect(&socket, patience).await.map(TokioIo::new) }
        }))
}

async fn connect(socket: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let started = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if started.elapsed() + pause > patience => {
                let text = format!("connecting to {}: {error}", socket.display());
                return Err(std::io::Error::new(error.kind(), text));
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// What a client call ends as.
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answer {
        let span = tracing::Span::current();
        if let Some(value) =
            cause::traceparent_of(&span).and_then(|text| HeaderValue::from_str(&text).ok())
        {
            request.headers_mut().insert("traceparent", value);
        }
        if is_watch(&request) {
            self.watched.store(true, Ordering::Relaxed);
        }
        let deadline = deadline_of(&mut request);
        let name = self.name;
        let call = self.inner.call(request);
        Box::pin(async move {
            let Some(deadline) = deadline else {
                return call.await.map_err(Into::into);
            };
            // The transport's and the peer's timers start later than this one, and do not say
            // whom they waited for.
            tokio::select! {
                biased;
                () = tokio::time::sleep(deadline) => {
                    let message = format!("no answer from {name} within {deadline:?}");
                    Err(tonic::Status::deadline_exceeded(message).into())
                }
                answer = call => answer.map_err(Into::into),
            }
        })
    }
}

/// The deadline of a request, filled in when it names none; streams (`Watch…`) have none.
fn deadline_of(request: &mut Request<Body>) -> Option<Duration> {
    if let Some(named) = request.headers().get("grpc-timeout") {
        return named.to_str().ok().and_then(parse_timeout);
    }
    if is_watch(request) {
        return None;
    }
    let millis = format!("{}m", DEADLINE.as_millis());
    if let Ok(value) = HeaderValue::from_str(&millis) {
        request.headers_mut().insert("grpc-timeout", value);
    }
    Some(DEADLINE)
}

/// By our own convention streams are called `Watch…` and nothing else is.
fn is_watch(request: &Request<Body>) -> bool {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default();
    method.starts_with("Watch")
}

/// Reads gRPC's `TimeoutValue TimeoutUnit`.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
