//! Connections to a server, directly or through a proxy.

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

use super::url::{ProxyCredentials, ProxyScheme, ProxyUrl};

/// The limit for a tunnel that is ready, including the connection to the proxy.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(8);

type ProxyStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A tunnel that could not be opened. The message has the proxy's URL without credentials.
#[derive(Debug, thiserror::Error)]
#[error("connecting through proxy {proxy}")]
pub(crate) struct TunnelError {
    proxy: ProxyUrl,
    #[source]
    source: BoxError,
}

/// Connects directly or through a proxy.
#[derive(Clone)]
pub(crate) struct ProxyConnector {
    tcp: HttpConnector,
    proxy: Option<Arc<TunnelConnector>>,
}

struct TunnelConnector {
    proxy: ProxyUrl,
    connector: HttpsConnector<HttpConnector>,
}

impl ProxyConnector {
    /// `tls` is for HTTPS proxies: as in client-go, they are verified like the API server.
    pub(crate) fn new(
        tcp: HttpConnector,
        proxy: Option<ProxyUrl>,
        tls: &ClientConfig,
    ) -> ProxyConnector {
        let tunnel_connector = |proxy| {
            let connector = hyper_rustls::HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(tcp.clone());
            Arc::new(TunnelConnector { proxy, connector })
        };
        let proxy = proxy.map(tunnel_connector);
        ProxyConnector { tcp, proxy }
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = ProxyStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<ProxyStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(tunnels) = self.proxy.clone() else {
            let connection = self.tcp.call(server);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(connection.await?)) });
        };
        Box::pin(async move {
            let tunnel = match timeout(TUNNEL_TIMEOUT, tunnels.tunnel(&server)).await {
                Ok(tunnel) => tunnel,
                Err(_) => {
                    let message = format!("no tunnel within {} s", TUNNEL_TIMEOUT.as_secs());
                    Err(Error::new(ErrorKind::TimedOut, message).into())
                }
            };
            let proxy = tunnels.proxy.clone();
            tunnel.map_err(|source| TunnelError { proxy, source }.into())
        })
    }
}

impl TunnelConnector {
    async fn tunnel(&self, server: &Uri) -> Result<ProxyStream, BoxError> {
        let address = self.proxy.address.clone();
        // Connected here, as the tunnels of hyper-util drop the cause of a failed connection.
        let mut connection = Some(self.connector.clone().call(address.clone()).await?);
        let connector = service_fn(move |_: Uri| {
            ready(
                connection
                    .take()
                    .ok_or(Error::from(ErrorKind::NotConnected)),
            )
        });
        let server = with_explicit_port(server)?;
        let credentials = self.proxy.credentials.as_ref();
        match self.proxy.scheme {
            ProxyScheme::Http | ProxyScheme::Https => {
                let mut tunnel = Tunnel::new(address, connector);
                if let Some(credentials) = credentials {
                    tunnel = tunnel.with_auth(credentials.basic_auth().try_into()?);
                }
                Ok(tunnel.call(server).await?)
            }
            ProxyScheme::Socks => {
                let mut tunnel = SocksV5::new(address, connector);
                if let Some(ProxyCredentials { username, password }) = credentials.cloned() {
                    tunnel = tunnel.with_auth(username, password);
                }
                Ok(tunnel.call(server).await?)
            }
        }
    }
}

/// Proxies need the port even if it is the default one.
fn with_explicit_port(server: &Uri) -> Result<Uri, http::Error> {
    let is_http = server.scheme() == Some(&Scheme::HTTP);
    let (scheme, port) = if is_http {
        ("http", 80)
    } else {
        ("https", 443)
    };
    let port = server.port_u16().unwrap_or(port);
    let host = server.host().unwrap_or_default();
    let uri = Uri::builder().scheme(scheme).path_and_query("/");
    uri.authority(format!("{host}:{port}")).build()
}
