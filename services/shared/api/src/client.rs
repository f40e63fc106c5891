//! How a client is made of a kubeconfig, and of what stands in for its parts: the certificate that the
//! node keeps, what a program gives, and the proxy on the way.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

use crate::farewell::AskAgain;
use crate::kept;
use crate::plugin::Programs;
use crate::proxy::{self, Proxy, ProxyError, Reach};
use crate::renewal::Files;
use crate::{Access, ConnectError};

/// How long the server, or the proxy before it, may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection is asked for a sign of life this often …
const PING: Duration = Duration::from_secs(5);
/// … and given up when none comes for as long.
const PONG: Duration = Duration::from_secs(5);

/// How long a connection may take to be ready for requests, TLS and proxies included.
const READY: Duration = Duration::from_secs(12);

/// A client, and until when it is the right one.
pub(crate) struct Made {
    pub(crate) client: Client,
    /// What it was made of.
    pub(crate) files: Files,
    /// When its credentials end, where a program gave them.
    pub(crate) ends: Option<Timestamp>,
}

/// Makes the client of the kubeconfig as it is now.
pub(crate) async fn make(access: &Access, programs: &mut Programs) -> Result<Made, ConnectError> {
    let path = access.kubeconfig();
    // Before the files are read: what changes meanwhile is noticed at the next call.
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(path, error))?;
    let files = Files::of(path, Some(&kubeconfig)).and(access.kept());
    if let Some(kept) = access.kept() {
        kept::stand_in(&mut kubeconfig, kept);
    }
    let ends = programs.stand_in(&mut kubeconfig).await;
    let ends = ends.map_err(|source| ConnectError::Plugin {
        path: path.to_owned(),
        source,
    })?;
    let proxy_url = kept::cluster_mut(&mut kubeconfig).and_then(|cluster| {
        // kube reads the environment by rules of its own unless something stands here, and does
        // nothing more with it than to keep it.
        cluster.proxy_url.replace("http://unused".to_owned())
    });
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| wrong(path, error))?;
    let proxy = proxy_of(path, proxy_url.as_deref(), &config)?;
    let client = client_of(config, proxy, access.user_agent()).map_err(|source| {
        ConnectError::Credentials {
            path: path.to_owned(),
            source: Box::new(source),
        }
    })?;
    Ok(Made {
        client,
        files,
        ends,
    })
}

fn wrong(path: &Path, error: KubeconfigError) -> ConnectError {
    let path = path.to_owned();
    match error {
        KubeconfigError::Parse(error) => ConnectError::Yaml {
            path,
            place: place(&error.to_string()),
        },
        source => ConnectError::Kubeconfig { path, source },
    }
}

/// The numbers of a parser's "line 3 column 12", and nothing else of what it says.
fn place(said: &str) -> String {
    let number = |word: &str| {
        let (_, rest) = said.split_once(word)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse::<u32>().ok()
    };
    match (number("line "), number("column ")) {
        (Some(line), Some(column)) => format!("line {line} column {column}"),
        _ => "somewhere".to_owned(),
    }
}

fn proxy_of(
    path: &Path,
    proxy_url: Option<&str>,
    config: &Config,
) -> Result<Option<Proxy>, ConnectError> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(named) = proxy::named(proxy_url, &config.cluster_url, variable) else {
        return Ok(None);
    };
    match named.proxy {
        Ok(proxy) => {
            tracing::info!("the API server is reached by the proxy {proxy}");
            Ok(Some(proxy))
        }
        // As upstream: a variable that makes no sense names nothing.
        Err(ProxyError::Url(why)) if named.by_environment => {
            let place = named.place;
            tracing::warn!("{place} names no proxy ({why}): the API server is reached without");
            Ok(None)
        }
        Err(source) => Err(ConnectError::Proxy {
            path: path.to_owned(),
            place: named.place,
            source,
        }),
    }
}

fn client_of(mut config: Config, proxy: Option<Proxy>, user_agent: &str) -> kube::Result<Client> {
    if let Ok(value) = HeaderValue::from_str(user_agent) {
        config.headers.push((USER_AGENT, value));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // For servers or proxies that speak HTTP/1 only, where there are no pings.
    tcp.set_keepalive(Some(PING));
    tcp.set_keepalive_interval(Some(Duration::from_secs(2)));
    tcp.set_keepalive_retries(Some(3));
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols.clear();
    let reach = Reach::new(tcp, proxy, &tls);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let connector = match &config.tls_server_name {
        Some(name) => {
            let name = rustls::pki_types::ServerName::try_from(name.clone());
            let name = name.map_err(|error| kube::Error::Service(error.into()))?;
            connector.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name))
        }
        None => connector,
    };
    let connector = Limited(connector.enable_all_versions().wrap_connector(reach));
    let service = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer(RetryLayer::new(AskAgain::new()))
        .map_err(BoxError::from)
        .service(service);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Makes connections within [`READY`]: whoever takes one and then says nothing is given up.
#[derive(Clone)]
struct Limited<S>(S);

impl<S> Service<Uri> for Limited<S>
where
    S: Service<Uri, Error = BoxError>,
    S::Response: 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let made = timeout(READY, self.0.call(server));
        Box::pin(async move {
            made.await.unwrap_or_else(|_| {
                let why = format!("no connection within {} s", READY.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why).into())
            })
        })
    }
}
