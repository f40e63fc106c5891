//! The HTTP servers, plain and with TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use polylet_kit::CancellationToken;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::core::access::RequestUser;
use crate::tls::{self, ReloadingTls};

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the request headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alive pings to an idle HTTP/2 client.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// How long responses in progress may take once the process drains.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);
/// Concurrent connections on each port at most.
const MAX_CONNECTIONS: usize = 256;

/// Why a port cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("listening on {address}")]
pub(crate) struct BindError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// Binds a port.
///
/// # Errors
/// When it is in use or not permitted.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Serves plain HTTP until the process drains.
pub(crate) async fn plain(listener: TcpListener, router: Router, drain: CancellationToken) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some((stream, permit)) = accept(&listener, &permits, &drain).await {
        let serving = serve(
            stream,
            router.clone(),
            RequestUser::Anonymous,
            drain.clone(),
        );
        tokio::task::spawn_local(async move {
            serving.await;
            drop(permit);
        });
    }
}

/// Serves HTTPS until the process drains.
pub(crate) async fn secure(
    listener: TcpListener,
    mut tls: ReloadingTls,
    router: Router,
    drain: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some((stream, permit)) = accept(&listener, &permits, &drain).await {
        // There is none before the cluster has signed the certificate.
        let Some(tls) = tls.acceptor() else {
            continue;
        };
        let (router, drain) = (router.clone(), drain.clone());
        tokio::task::spawn_local(async move {
            // A failed handshake is the client's problem.
            let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await else {
                return;
            };
            let caller = tls::caller(stream.get_ref().1);
            serve(stream, router, caller, drain).await;
            drop(permit);
        });
    }
}

/// The next connection with its permit; `None` once the process drains.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    drain: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    loop {
        let permit = tokio::select! {
            () = drain.cancelled() => return None,
            permit = Arc::clone(permits).acquire_owned() => permit.ok()?,
        };
        let accepted = tokio::select! {
            () = drain.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return Some((stream, permit));
            }
            Err(error) => {
                // Most likely out of descriptors, until connections are closed.
                tracing::warn!(%error, "failed to accept connection; retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve<S>(stream: S, router: Router, caller: RequestUser, drain: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(caller.clone());
        async move {
            Ok::<_, Infallible>(
                router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {}),
            )
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // An idle or vanished client must not hold its permit for ever.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A client that disconnects is no error of ours.
        _ = connection.as_mut() => return,
        () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout(SHUTDOWN_TIMEOUT, connection).await;
}
