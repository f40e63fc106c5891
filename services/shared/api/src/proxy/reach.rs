//! A connection to a server, straight or through a proxy.

use std::future::{Future, ready};
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use polylet_kit::BoxError;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::{Service, service_fn};

use super::address::{Kind, Proxy, User};

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
                    Err(Error::new(ErrorKind::TimedOut, why).into())
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
        let at = self.proxy.at.clone();
        // Made here: what keeps a connection from being made is not told by those who ask over it.
        let mut made = Some(self.to_it.clone().call(at.clone()).await?);
        let to_it = service_fn(move |_: Uri| {
            ready(made.take().ok_or(Error::from(ErrorKind::NotConnected)))
        });
        let (server, user) = (with_port(server)?, self.proxy.user.as_ref());
        match self.proxy.kind {
            Kind::Http | Kind::Https => {
                let mut tunnel = Tunnel::new(at, to_it);
                if let Some(user) = user {
                    tunnel = tunnel.with_auth(user.basic().try_into()?);
                }
                Ok(tunnel.call(server).await?)
            }
            Kind::Socks => {
                let mut tunnel = SocksV5::new(at, to_it);
                if let Some(User { name, password }) = user.cloned() {
                    tunnel = tunnel.with_auth(name, password);
                }
                Ok(tunnel.call(server).await?)
            }
        }
    }
}

/// A proxy is told the port in every case.
fn with_port(server: &Uri) -> Result<Uri, http::Error> {
    let plain = server.scheme() == Some(&Scheme::HTTP);
    let (scheme, port) = if plain { ("http", 80) } else { ("https", 443) };
    let port = server.port_u16().unwrap_or(port);
    let host = server.host().unwrap_or_default();
    let uri = Uri::builder().scheme(scheme).path_and_query("/");
    uri.authority(format!("{host}:{port}")).build()
}
