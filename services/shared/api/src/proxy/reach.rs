//! A connection to a server, straight or through a proxy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use polylet_kit::BoxError;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::Service;

use super::address::{Kind, Proxy};
use super::{connect, socks};

/// How long a proxy may take to have a tunnel ready, the way to it included.
const TUNNEL: Duration = Duration::from_secs(8);

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Why a proxy is of no help. Its address is told, its user is not.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy}")]
pub(crate) struct TunnelError {
    proxy: Proxy,
    #[source]
    source: BoxError,
}

/// Makes connections: straight, or through a proxy.
#[derive(Clone)]
pub(crate) struct Reach {
    tcp: HttpConnector,
    proxy: Option<Arc<Through>>,
}

struct Through {
    proxy: Proxy,
    to_it: HttpsConnector<HttpConnector>,
}

impl Reach {
    /// With this way of making connections; `tls` says whom to trust as a proxy of HTTPS: as upstream
    /// has it, whom the kubeconfig trusts as the server.
    pub(crate) fn new(tcp: HttpConnector, proxy: Option<Proxy>, tls: &ClientConfig) -> Reach {
        let through = |proxy| {
            let to_it = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp.clone());
            Arc::new(Through { proxy, to_it })
        };
        let proxy = proxy.map(through);
        Reach { tcp, proxy }
    }
}

impl Service<Uri> for Reach {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(through) = self.proxy.clone() else {
            let straight = self.tcp.call(server);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(straight.await?)) });
        };
        Box::pin(async move {
            let tunnel = match timeout(TUNNEL, through.tunnel(&server)).await {
                Ok(tunnel) => tunnel,
                Err(_) => {
                    let why = format!("no tunnel within {} s", TUNNEL.as_secs());
                    Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why).into())
                }
            };
            let proxy = || through.proxy.clone();
            tunnel.map_err(|source| {
                TunnelError {
                    proxy: proxy(),
                    source,
                }
                .into()
            })
        })
    }
}

impl Through {
    async fn tunnel(&self, server: &Uri) -> Result<Stream, BoxError> {
        let (host, user) = (server.host().unwrap_or_default(), self.proxy.user.as_ref());
        let plain = server.scheme() == Some(&Scheme::HTTP);
        let port = server.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let to_it = self.to_it.clone().call(self.proxy.at.clone()).await?;
        let mut stream = TokioIo::new(to_it);
        match self.proxy.kind {
            Kind::Http | Kind::Https => {
                connect::ask(&mut stream, &format!("{host}:{port}"), user).await?;
            }
            Kind::Socks => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                socks::ask(&mut stream, host, port, user).await?;
            }
        }
        Ok(stream.into_inner())
    }
}
