//! The server side of every link: who may connect, the trace context of the caller, counters, and
//! a limit on calls at once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use http::{Request, Response};
use polylet_wire::common::v1::Cause;
use tokio::net::{UnixListener, UnixStream};
use tonic::body::Body;
use tonic::server::NamedService;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tracing::Instrument;

use crate::cause;

/// Calls that one connection may have under way; streams count only until they have begun.
const CALLS_AT_ONCE: usize = 256;

type Handler = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The gRPC services of a process, found by name.
#[derive(Clone, Default)]
pub struct Routes {
    by_name: Arc<BTreeMap<&'static str, Handler>>,
    counts: Arc<Counts>,
}

/// Calls since the process started.
#[derive(Default)]
pub struct Counts {
    /// All calls that were routed.
    pub calls: AtomicU64,
    /// Calls answered with an error before a first message.
    pub failed: AtomicU64,
}

impl Routes {
    /// Adds a generated server.
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

    /// Full names of the services.
    pub fn names(&self) -> Vec<&'static str> {
        self.by_name.keys().copied().collect()
    }

    /// Calls so far.
    pub fn counts(&self) -> Arc<Counts> {
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
            let status = tonic::Status::unimplemented(format!("no service {service:?} here"));
            return Box::pin(std::future::ready(Ok(status.into_http())));
        };
        let span = span_of(&request, service, method);
        let counts = self.counts.clone();
        counts.calls.fetch_add(1, Ordering::Relaxed);
        let call = async move {
            let answer = handler.oneshot(request).await;
            // Errors before a first message are told in the headers.
            if let Ok(answer) = &answer
                && answer
                    .headers()
                    .get("grpc-status")
                    .is_some_and(|code| code != "0")
            {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            answer
        };
        Box::pin(call.instrument(span))
    }
}

fn split(path: &str) -> (&str, &str) {
    path.trim_start_matches('/')
        .split_once('/')
        .unwrap_or((path, ""))
}

/// A span only for calls made from within one: at rest nothing is traced.
fn span_of(request: &Request<Body>, service: &str, method: &str) -> tracing::Span {
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
        rpc.system = "grpc"
    );
    let cause = Cause {
        traceparent: parent.to_owned(),
        ..Cause::default()
    };
    cause::set_parent(&span, Some(&cause));
    span
}

/// Serves `routes` until `stop` resolves, then lets calls under way end. Watches never end: the
/// caller bounds how long it waits.
pub async fn serve(
    listener: std::os::unix::net::UnixListener,
    routes: Routes,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true).map_err(ServeError::Listen)?;
    let listener = UnixListener::from_std(listener).map_err(ServeError::Listen)?;
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(CALLS_AT_ONCE)
        .serve_with_incoming_shutdown(routes, incoming(listener), stop)
        .await
        .map_err(ServeError::Serve)
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be used.
    #[error("taking the listening socket")]
    Listen(#[source] std::io::Error),
    /// The server failed.
    #[error("serving")]
    Serve(#[source] tonic::transport::Error),
}

/// Connections of root and of our own user. The sockets are 0600 in any case; this holds also for
/// descriptors that came from elsewhere.
fn incoming(listener: UnixListener) -> impl Stream<Item = Result<UnixStream, Infallible>> {
    let own = rustix::process::geteuid().as_raw();
    futures::stream::unfold(listener, move |listener| async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == 0 || peer.uid() == own => {
                        return Some((Ok(stream), listener));
                    }
                    Ok(peer) => tracing::warn!(uid = peer.uid(), "connection refused"),
                    Err(error) => tracing::warn!(%error, "connection of an unknown user refused"),
                },
                Err(error) => {
                    // Out of descriptors, most likely: trying again at once would spin.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}
