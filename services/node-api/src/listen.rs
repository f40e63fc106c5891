//! Listening: plain and TLS, each connection on its own.

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

use crate::core::access::Caller;
use crate::tls::{self, Tls};

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants.
const HEADERS: Duration = Duration::from_secs(30);
/// How often a quiet HTTP/2 client is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long answers under way may take once the process drains.
const LAST_ANSWERS: Duration = Duration::from_secs(8);
/// Connections at once, on each port.
const CONNECTIONS: usize = 256;

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub(crate) struct BindError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// Binds a port.
///
/// # Errors
/// When it is taken or not ours to take.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Serves plain HTTP until the process drains.
pub(crate) async fn plain(listener: TcpListener, router: Router, drain: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((stream, place)) = accept(&listener, &places, &drain).await {
        let serving = serve(stream, router.clone(), Caller::Anonymous, drain.clone());
        tokio::task::spawn_local(async move {
            serving.await;
            drop(place);
        });
    }
}

/// Serves HTTPS until the process drains.
pub(crate) async fn secure(
    listener: TcpListener,
    mut tls: Tls,
    router: Router,
    drain: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Some((stream, place)) = accept(&listener, &places, &drain).await {
        // None before the cluster has signed a certificate: nobody could trust what is served.
        let Some(tls) = tls.acceptor() else {
            continue;
        };
        let (router, drain) = (router.clone(), drain.clone());
        tokio::task::spawn_local(async move {
            // A client that does not shake hands is nobody's trouble but its own.
            let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else {
                return;
            };
            let caller = tls::caller(stream.get_ref().1);
            serve(stream, router, caller, drain).await;
            drop(place);
        });
    }
}

/// The next connection with its place among all of them; `None` once draining.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    drain: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    loop {
        let place = tokio::select! {
            () = drain.cancelled() => return None,
            place = Arc::clone(places).acquire_owned() => place.ok()?,
        };
        let accepted = tokio::select! {
            () = drain.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return Some((stream, place));
            }
            Err(error) => {
                // Out of descriptors, most likely: wait until some are back.
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve<S>(stream: S, router: Router, caller: Caller, drain: CancellationToken)
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
    // A client that says nothing, or has vanished, must not keep its place for ever.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // The client's going away is no error of ours.
        _ = connection.as_mut() => return,
        () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = timeout(LAST_ANSWERS, connection).await;
}
