//! The server side of every connection: access by peer credentials, the caller's trace context,
//! counters, and a limit of concurrent calls.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use http::header::DATE;
use http::{HeaderValue, Request, Response};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tracing::Instrument;

use crate::access::SocketAccess;
use crate::{HealthConditions, cause};

/// Concurrent calls per connection; streams count only until their first message.
const MAX_CONCURRENT_CALLS: usize = 256;

/// Keeps the HTTP library from adding the time to each response: nobody reads it, and both ends of a connection
/// would keep those of the last minute in their tables of headers (HPACK).
const NO_DATE: HeaderValue = HeaderValue::from_static("");

/// The health condition of a process that accepts no connections, for lack of file descriptors.
const NOT_ACCEPTED: &str = "ConnectionsNotAccepted";

type Handler = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The gRPC services of a process by name.
#[derive(Clone, Default)]
pub struct Routes {
    by_name: Arc<BTreeMap<&'static str, Handler>>,
    counts: Arc<CallCounters>,
}

/// Counters of calls since process start.
#[derive(Default)]
pub struct CallCounters {
    /// All routed calls.
    pub calls: AtomicU64,
    /// Calls that failed before a first message.
    pub failed: AtomicU64,
    /// Calls without a response, or for streams without their beginning.
    unanswered: watch::Sender<usize>,
}

impl CallCounters {
    /// Resolves when every call has its response. Streams go on.
    pub(crate) async fn answered(&self) {
        // The sender is in this value.
        let _ = self
            .unanswered
            .subscribe()
            .wait_for(|count| *count == 0)
            .await;
    }
}

/// A call without a response; the end of its connection drops it.
struct UnansweredCall(Arc<CallCounters>);

impl UnansweredCall {
    fn start(counts: &Arc<CallCounters>) -> Self {
        counts.calls.fetch_add(1, Ordering::Relaxed);
        counts.unanswered.send_modify(|count| *count += 1);
        Self(Arc::clone(counts))
    }
}

impl Drop for UnansweredCall {
    fn drop(&mut self) {
        let less = |count: &mut usize| *count = count.saturating_sub(1);
        self.0.unanswered.send_modify(less);
    }
}

impl Routes {
    /// Adds a generated gRPC server.
    pub fn add<S>(&mut self, server: S)
    where
        S: tower_service::Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Arc::make_mut(&mut self.by_name).insert(S::NAME, BoxCloneSyncService::new(server));
    }

    /// Full names of all services.
    pub fn names(&self) -> Vec<&'static str> {
        self.by_name.keys().copied().collect()
    }

    /// The counters of these routes.
    pub fn counts(&self) -> Arc<CallCounters> {
        self.counts.clone()
    }
}

impl tower_service::Service<Request<Body>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (service, method) = split(request.uri().path());
        let Some(handler) = self.by_name.get(service).cloned() else {
            let status = tonic::Status::unimplemented(format!("unknown service {service:?}"));
            return Box::pin(std::future::ready(Ok(status.into_http())));
        };
        let span = request_span(&request, service, method);
        let counts = self.counts.clone();
        let unanswered = UnansweredCall::start(&counts);
        let call = async move {
            let _unanswered = unanswered;
            let mut response = handler.oneshot(request).await?;
            // Without room for it, the library adds its own.
            let _ = response.headers_mut().try_insert(DATE, NO_DATE);
            // Errors before a first message are in the headers.
            let status = response.headers().get("grpc-status");
            if status.is_some_and(|code| code != "0") {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(response)
        };
        Box::pin(call.instrument(span))
    }
}

fn split(path: &str) -> (&str, &str) {
    path.trim_start_matches('/')
        .split_once('/')
        .unwrap_or((path, ""))
}

/// A span for a call that was made within one; other calls are not traced.
fn request_span(request: &Request<Body>, service: &str, method: &str) -> tracing::Span {
    let parent = request
        .headers()
        .get("traceparent")
        .and_then(|value| value.to_str().ok());
    let Some(parent) = parent.filter(|text| cause::parse(text).is_some()) else {
        return tracing::Span::none();
    };
    let name = service.rsplit('.').next().unwrap_or(service);
    let span = tracing::info_span!(
        "rpc",
        otel.name = format!("{name}/{method}"),
        otel.kind = "server",
        rpc.system.name = "grpc",
        rpc.method = format!("{service}/{method}"),
    );
    cause::set_caller(&span, parent);
    span
}

/// Serves `routes` until `stop` resolves, then waits for calls in progress. Watches do not end: the
/// caller bounds the wait.
pub async fn serve(
    listener: std::os::unix::net::UnixListener,
    routes: Routes,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let access = SocketAccess::of(&listener);
    listener.set_nonblocking(true).map_err(ServeError::Listen)?;
    let listener = UnixListener::from_std(listener).map_err(ServeError::Listen)?;
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(MAX_CONCURRENT_CALLS)
        .serve_with_incoming_shutdown(routes, incoming(listener, access), stop)
        .await
        .map_err(ServeError::Serve)
}

/// Why the server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listening socket cannot be used.
    #[error("taking the listening socket")]
    Listen(#[source] std::io::Error),
    /// The gRPC server failed.
    #[error("serving")]
    Serve(#[source] tonic::transport::Error),
}

/// Accepts connections of those who have access.
fn incoming(
    listener: UnixListener,
    access: SocketAccess,
) -> impl Stream<Item = Result<UnixStream, Infallible>> {
    let conditions = HealthConditions::of_process();
    futures::stream::unfold(
        (listener, conditions),
        move |(listener, conditions)| async move {
            loop {
                let accepted = listener.accept().await;
                conditions.record(NOT_ACCEPTED, "", &accepted);
                match accepted {
                    Ok((stream, _)) => match access.check(&stream) {
                        Ok(()) => return Some((Ok(stream), (listener, conditions))),
                        Err(error) => {
                            let error = crate::report(&error);
                            tracing::warn!(error, "refused a connection");
                        }
                    },
                    Err(_) => {
                        // Probably out of file descriptors: an immediate retry would spin.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        },
    )
}
