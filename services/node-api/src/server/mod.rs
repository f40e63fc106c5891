//! The HTTP servers, plain and with TLS.

mod connection;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use polylet_kit::{CancellationToken, TaskTracker, TaskTrackerToken};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tower::ServiceExt;

use connection::{ActiveRequest, AdmittedConnection, Connections, ResponseBody};
pub(crate) use connection::{HttpConnection, LastingResponse};

use crate::core::access::RequestUser;
use crate::core::connections::{ConnectionLimits, ConnectionTimeouts};
use crate::tls::{ClientChain, ReloadingTls};

/// Interval of keep-alive pings to an HTTP/2 client.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of TCP keep-alive probes, as Go's servers send them, and how many may be lost.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const MAX_LOST_PROBES: u32 = 9;
/// Largest headers of a request: a token has 16 KiB at most.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// How long responses in progress may take once the process drains: new connections wait for the next
/// process meanwhile.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection without a request is kept then: its first request may be under way.
const UNUSED_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the goodbye to an idle client may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections of a port at most, and what they may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerLimits {
    handshake_timeout: Duration,
    connections: ConnectionLimits,
    timeouts: ConnectionTimeouts,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            connections: ConnectionLimits {
                untrusted: 128,
                untrusted_per_address: 64,
                untrusted_of_known: 256,
                trusted: 256,
            },
            timeouts: ConnectionTimeouts {
                first_request: Duration::from_secs(10),
                // Upstream's idle and write timeouts.
                idle: Duration::from_secs(90),
                unread: Duration::from_secs(60),
                unread_trusted: Duration::from_secs(4 * 3600),
            },
        }
    }
}

/// What is in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerTasks {
    /// Connections: they end a moment after the drain has begun.
    pub(crate) connections: TaskTracker,
    /// Streams, and connections with a response that lasts: they may go on.
    pub(crate) lasting: TaskTracker,
}

/// Serves plain HTTP until the process drains.
pub(crate) async fn plain(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    tasks: ServerTasks,
    drain: CancellationToken,
) {
    let connections = Connections::new(limits.connections, limits.timeouts);
    while let Some((stream, admitted)) = accept(&listener, &connections, &drain).await {
        let router = router.clone();
        let progress = ConnectionProgress::new(&tasks, &drain);
        tokio::task::spawn_local(async move {
            let user = || RequestUser::Anonymous;
            serve(stream, router, user, &admitted, progress).await;
        });
    }
}

/// Serves HTTPS until the process drains.
pub(crate) async fn secure(
    listener: TcpListener,
    tls: ReloadingTls,
    router: Router,
    limits: ServerLimits,
    tasks: ServerTasks,
    drain: CancellationToken,
) {
    let connections = Connections::new(limits.connections, limits.timeouts);
    while let Some((stream, admitted)) = accept(&listener, &connections, &drain).await {
        // There is none before the cluster has signed the certificate.
        let Some(acceptor) = tls.acceptor() else {
            continue;
        };
        let (tls, router) = (tls.clone(), router.clone());
        let progress = ConnectionProgress::new(&tasks, &drain);
        tokio::task::spawn_local(async move {
            let handshake = timeout(limits.handshake_timeout, acceptor.accept(stream));
            let accepted = tokio::select! {
                () = admitted.0.displaced() => return,
                () = unused(&progress.drain) => return,
                accepted = handshake => accepted,
            };
            // A failed handshake is the client's problem.
            let Ok(Ok(stream)) = accepted else {
                return;
            };
            let chain = ClientChain::from_connection(stream.get_ref().1);
            let user = move || match &chain {
                Some(chain) => chain.request_user(&tls),
                None => RequestUser::Anonymous,
            };
            serve(stream, router, user, &admitted, progress).await;
        });
    }
}

/// The next connection with its place; `None` once the process drains.
async fn accept(
    listener: &TcpListener,
    connections: &Connections,
    drain: &CancellationToken,
) -> Option<(TcpStream, AdmittedConnection)> {
    loop {
        let accepted = tokio::select! {
            () = drain.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Err(error) = set_options(&stream) {
                    // Most likely closed by the client already.
                    tracing::debug!(%error, "failed to set options of a connection; closing it");
                    continue;
                }
                let socket = stream.as_fd().try_clone_to_owned().ok();
                return Some((stream, connections.admit(peer.ip(), socket)));
            }
            Err(error) => {
                // Most likely out of descriptors, until connections are closed.
                tracing::warn!(%error, "failed to accept connection; retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Without probes, a client that vanished while nothing is sent to it would hold its place for ever.
fn set_options(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, MAX_LOST_PROBES)?;
    Ok(())
}

/// A connection among those in progress.
struct ConnectionProgress {
    drain: CancellationToken,
    connection: TaskTrackerToken,
    lasting: TaskTracker,
}

impl ConnectionProgress {
    fn new(tasks: &ServerTasks, drain: &CancellationToken) -> Self {
        Self {
            drain: drain.clone(),
            connection: tasks.connections.token(),
            lasting: tasks.lasting.clone(),
        }
    }

    /// The drain does not wait for the connection any more.
    fn last(self) -> TaskTrackerToken {
        let lasting = self.lasting.token();
        drop(self.connection);
        lasting
    }
}

/// Resolves when a connection without a request is not kept any longer.
async fn unused(drain: &CancellationToken) {
    drain.cancelled().await;
    tokio::time::sleep(UNUSED_TIMEOUT).await;
}

/// Serves the requests of one connection. `user` is called for each request, and returns its sender.
async fn serve<S>(
    stream: S,
    router: Router,
    user: impl Fn() -> RequestUser + 'static,
    admitted: &AdmittedConnection,
    progress: ConnectionProgress,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::clone(&admitted.0);
    let service = service_fn(move |request: Request<Incoming>| {
        let active = ActiveRequest::start(&connection);
        let router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(user());
        request.extensions_mut().insert(Arc::clone(&connection));
        async move {
            let mut response = router
                .oneshot(request)
                .await
                .unwrap_or_else(|never| match never {});
            let lasts = response.extensions_mut().remove::<LastingResponse>();
            let body = |body| ResponseBody::new(body, active, lasts.is_some());
            Ok::<_, Infallible>(response.map(body))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // How long a client may take is decided for both protocols, and before the protocol is known, by
    // `HttpConnection::expired`.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(PING_INTERVAL);
    let http = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(http);
    let closing = tokio::select! {
        // A request that came in time is answered, even if this process reads it late.
        biased;
        // A client that disconnects is no error of ours.
        _ = http.as_mut() => return,
        () = admitted.0.displaced() => return,
        idle = admitted.0.expired() => {
            if !idle {
                return;
            }
            CLOSE_TIMEOUT
        }
        () = progress.drain.cancelled() => tokio::select! {
            _ = http.as_mut() => return,
            () = unused(&progress.drain) => SHUTDOWN_TIMEOUT,
            () = admitted.0.used() => SHUTDOWN_TIMEOUT,
        }
    };
    http.as_mut().graceful_shutdown();
    let closed = timeout(closing, http.as_mut()).await;
    if closed.is_err() && progress.drain.is_cancelled() && admitted.0.is_lasting() {
        let _lasting = progress.last();
        tokio::select! {
            _ = http.as_mut() => return,
            () = admitted.0.lasting_ended() => {}
        }
        let _ = timeout(CLOSE_TIMEOUT, http).await;
    }
}
