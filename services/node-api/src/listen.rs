//! Listening: plain and TLS, each connection on its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use polylet_kit::CancellationToken;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::core::access::Caller;
use crate::tls;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

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
    while let Some(stream) = accept(&listener, &drain).await {
        let router = router.clone();
        tokio::task::spawn_local(serve(stream, router, Caller::Anonymous, drain.clone()));
    }
}

/// Serves HTTPS until the process drains.
pub(crate) async fn secure(
    listener: TcpListener,
    tls: TlsAcceptor,
    router: Router,
    drain: CancellationToken,
) {
    while let Some(stream) = accept(&listener, &drain).await {
        let (tls, router, drain) = (tls.clone(), router.clone(), drain.clone());
        tokio::task::spawn_local(async move {
            // A client that does not shake hands is nobody's trouble but its own.
            let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else {
                return;
            };
            let caller = tls::caller(stream.get_ref().1);
            serve(stream, router, caller, drain).await;
        });
    }
}

/// The next connection; `None` once draining.
async fn accept(listener: &TcpListener, drain: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            () = drain.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return Some(stream);
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
    let builder = Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        // The client's going away is no error of ours.
        _ = connection => {}
        () = drain.cancelled() => {}
    }
}
