//! The client side of a connection to a peer: one lazily opened HTTP/2 connection over the peer's
//! socket, which reconnects; a deadline for every call that is not a stream; and the caller's trace
//! context.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
use crate::descriptor::Dependency;
use crate::handshake::Handshake;
use crate::request_end::end_with_message;
use crate::resend;
use crate::trace_context;

/// The largest message accepted from a peer, in bytes. A pod, ConfigMap or Secret can have 1.5 MiB in
/// the cluster's store and several times that as JSON, some messages hold several manifests, and
/// lists hold all pods of a node. Peers are trusted, so this only guards against corrupt lengths.
pub const MAX_MESSAGE_SIZE: usize = 1 << 30;

/// Deadline of a call without one.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(10);

/// How long a connector retries before it reports the failure: time for a peer that was started by
/// hand. Under a service manager the socket always exists.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The transport of a generated client: `PlegServiceClient::new(peer.channel())`.
#[derive(Clone)]
pub struct Channel {
    name: &'static str,
    inner: tonic::transport::Channel,
    /// Set once a stream of the peer is requested.
    watched: Arc<AtomicBool>,
    handshake: Arc<Handshake>,
}

impl Channel {
    /// `calls` has what the peer must serve, beside calls to other peers.
    pub(crate) fn new(
        name: &'static str,
        socket: &Path,
        calls: &[Dependency],
        watched: Arc<AtomicBool>,
    ) -> Channel {
        let handshake = Handshake::new(name, calls);
        Channel {
            name,
            inner: connect_lazily(socket, CONNECT_TIMEOUT, handshake.connections()),
            watched,
            handshake: Arc::new(handshake),
        }
    }

    /// The same connection for streams that nobody waits for.
    pub(crate) fn unwatched(mut self) -> Channel {
        self.watched = Arc::default();
        self
    }
}

/// A bare transport over a Unix socket, without deadlines or traces. Needs a tokio runtime.
pub fn unix(socket: &Path) -> tonic::transport::Channel {
    unix_with_timeout(socket, CONNECT_TIMEOUT)
}

/// The same with a connector that gives up after `timeout`.
pub(crate) fn unix_with_timeout(socket: &Path, timeout: Duration) -> tonic::transport::Channel {
    connect_lazily(socket, timeout, Arc::default())
}

/// The same; `connections` counts the connections.
fn connect_lazily(
    socket: &Path,
    timeout: Duration,
    connections: Arc<AtomicU64>,
) -> tonic::transport::Channel {
    let socket: PathBuf = socket.to_owned();
    // Only the :authority of the requests; the connector opens the socket.
    Endpoint::from_static("http://localhost")
        .buffer_size(64)
        .connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let (socket, connections) = (socket.clone(), connections.clone());
            async move {
                let stream = connect(&socket, timeout).await?;
                connections.fetch_add(1, Ordering::AcqRel);
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        }))
}

async fn connect(socket: &Path, timeout: Duration) -> std::io::Result<UnixStream> {
    let started = tokio::time::Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if started.elapsed() + pause > timeout => {
                let text = format!("connecting to {}: {error}", socket.display());
                return Err(std::io::Error::new(error.kind(), text));
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// The future of a client call.
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let mut request = request.map(end_with_message);
        let span = tracing::Span::current();
        if let Some(value) = cause::traceparent(&span).and_then(trace_context::to_header) {
            // Without room for it, the call is not part of the trace.
            let headers = request.headers_mut();
            let _ = headers.try_insert(trace_context::TRACEPARENT, value);
        }
        if is_watch(&request) {
            self.watched.store(true, Ordering::Relaxed);
        }
        let deadline = set_deadline(&mut request);
        let name = self.name;
        // The one that is ready is used for this call, a copy of it for the next one.
        let copy = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, copy.clone());
        let handshake = self.handshake.clone();
        let call = async move {
            handshake.check(&copy).await?;
            let response = resend::call(ready, request).await?;
            handshake.check(&copy).await?;
            Ok::<_, BoxError>(response)
        };
        Box::pin(async move {
            let Some(deadline) = deadline else {
                return call.await;
            };
            // The timers of the transport and the peer start later than this one, and their errors do
            // not name the peer.
            tokio::select! {
                biased;
                () = tokio::time::sleep(deadline) => {
                    let message = format!("no response from {name} within {deadline:?}");
                    Err(tonic::Status::deadline_exceeded(message).into())
                }
                response = call => response,
            }
        })
    }
}

/// The deadline of a request, set to the default when it has none; streams (`Watch…`) have none.
fn set_deadline(request: &mut Request<Body>) -> Option<Duration> {
    if let Some(timeout) = request.headers().get("grpc-timeout") {
        return timeout.to_str().ok().and_then(parse_timeout);
    }
    if is_watch(request) {
        return None;
    }
    let millis = format!("{}m", DEFAULT_DEADLINE.as_millis());
    if let Ok(value) = HeaderValue::from_str(&millis) {
        // Without room for it, only this side has the deadline.
        let _ = request.headers_mut().try_insert("grpc-timeout", value);
    }
    Some(DEFAULT_DEADLINE)
}

/// By convention the names of streams, and only those, begin with `Watch`.
fn is_watch(request: &Request<Body>) -> bool {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default();
    method.starts_with("Watch")
}

/// Parses gRPC's `TimeoutValue TimeoutUnit`.
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
