//! Builds a client from a kubeconfig, the rotated certificate, a credential plugin and a proxy.

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
use kube::config::{KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};

use crate::client_cert;
use crate::credential_files::CredentialFiles;
use crate::exec_credential::PluginRunner;
use crate::goaway_retry::GoawayRetry;
use crate::kubeconfig::{self, current_cluster_mut};
use crate::metrics::{self, CountRequests};
use crate::proxy::{self, ProxyConnector, ProxyError, ProxyUrl};
use crate::trace_context::AddTraceContext;
use crate::{ClientConfig, ConnectError};

/// The limit for a TCP connection to the server or its proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between HTTP/2 pings. They find what is dead behind a proxy; on a connection without one, the
/// kernel's probes are earlier, and wake no process.
const PING_INTERVAL: Duration = Duration::from_secs(8);
/// A connection without a response to a ping for this long is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent connection is probed by the kernel after this time.
const TCP_PROBE_AFTER: Duration = Duration::from_secs(5);
/// The time between these probes.
const TCP_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// What is sent, data or probes, is acknowledged within this time, or the connection is closed.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit for a connection that is ready for requests, including TLS and the proxy.
const READY_TIMEOUT: Duration = Duration::from_secs(12);

/// A client and how long it is valid.
pub(crate) struct BuiltClient {
    pub(crate) client: Client,
    /// The files it was built from.
    pub(crate) files: CredentialFiles,
    /// When the credentials of a plugin expire.
    pub(crate) expires_at: Option<Timestamp>,
}

/// Builds a client from the present kubeconfig.
pub(crate) async fn build(
    config: &ClientConfig,
    plugins: &mut PluginRunner,
) -> Result<BuiltClient, ConnectError> {
    let path = config.kubeconfig();
    let mut kubeconfig = kubeconfig::read(path).map_err(|error| kubeconfig_error(path, error))?;
    // Versions are taken before the certificates are read: the next call notices a change in between.
    let files = CredentialFiles::new(path, Some(&kubeconfig)).with(config.client_cert());
    if let Some(rotated) = config.client_cert() {
        client_cert::apply(&mut kubeconfig, rotated);
    }
    let expires_at = plugins.apply(&mut kubeconfig).await;
    let expires_at = expires_at.map_err(|source| ConnectError::Plugin {
        path: path.to_owned(),
        source,
    })?;
    let proxy_url = current_cluster_mut(&mut kubeconfig).and_then(|cluster| {
        // Unless this is set, kube applies its own rules to the environment. It does not use the
        // value otherwise.
        cluster.proxy_url.replace("http://unused".to_owned())
    });
    let options = KubeConfigOptions::default();
    let kube_config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let kube_config = kube_config.map_err(|error| kubeconfig_error(path, error))?;
    let proxy = select_proxy(path, proxy_url.as_deref(), &kube_config)?;
    let client = build_service(kube_config, proxy, config.user_agent()).map_err(|source| {
        ConnectError::Credentials {
            path: path.to_owned(),
            source: Box::new(source),
        }
    })?;
    Ok(BuiltClient {
        client,
        files,
        expires_at,
    })
}

fn kubeconfig_error(path: &Path, error: KubeconfigError) -> ConnectError {
    let path = path.to_owned();
    match error {
        KubeconfigError::Parse(error) => ConnectError::Yaml {
            path,
            position: position(&error.to_string()),
        },
        source => ConnectError::Kubeconfig { path, source },
    }
}

/// The position in a parser's message ("line 3 column 12"), and nothing else of it.
fn position(message: &str) -> String {
    let number = |word: &str| {
        let (_, rest) = message.split_once(word)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest.get(..end.unwrap_or(rest.len()))?.parse::<u32>().ok()
    };
    match (number("line "), number("column ")) {
        (Some(line), Some(column)) => format!("line {line} column {column}"),
        _ => "unknown position".to_owned(),
    }
}

fn select_proxy(
    path: &Path,
    proxy_url: Option<&str>,
    config: &Config,
) -> Result<Option<ProxyUrl>, ConnectError> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(setting) = proxy::select(proxy_url, &config.cluster_url, variable) else {
        return Ok(None);
    };
    match setting.proxy {
        Ok(proxy) => {
            tracing::info!(proxy = %proxy, "connecting to the API server through a proxy");
            Ok(Some(proxy))
        }
        // Upstream ignores an invalid variable as well.
        Err(error @ ProxyError::Url(_)) if setting.from_environment => {
            tracing::warn!(
                variable = setting.source,
                error = %polylet_kit::report(&error),
                "invalid proxy setting; connecting to the API server without a proxy"
            );
            Ok(None)
        }
        Err(source) => Err(ConnectError::Proxy {
            path: path.to_owned(),
            setting: setting.source,
            source,
        }),
    }
}

fn build_service(
    mut config: Config,
    proxy: Option<ProxyUrl>,
    user_agent: &str,
) -> kube::Result<Client> {
    if let Ok(value) = HeaderValue::from_str(user_agent) {
        config.headers.push((USER_AGENT, value));
    }
    metrics::register_counts();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(TCP_PROBE_AFTER));
    tcp.set_keepalive_interval(Some(TCP_PROBE_INTERVAL));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols.clear();
    let proxy_connector = ProxyConnector::new(tcp, proxy, &tls);
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
    let connector = ConnectDeadline(
        connector
            .enable_all_versions()
            .wrap_connector(proxy_connector),
    );
    let service = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(connector);
    #[cfg(feature = "crash-points")]
    let service = crate::crash_points::CrashPoints(service);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer_fn(AddTraceContext)
        .layer_fn(CountRequests)
        .layer(RetryLayer::new(GoawayRetry::new()))
        .map_err(BoxError::from)
        .service(service);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Gives up connections that are not ready within [`READY_TIMEOUT`], such as to a server that accepts
/// and then is silent.
#[derive(Clone)]
struct ConnectDeadline<S>(S);

impl<S> Service<Uri> for ConnectDeadline<S>
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
        let connection = timeout(READY_TIMEOUT, self.0.call(server));
        Box::pin(async move {
            connection.await.unwrap_or_else(|_| {
                let message = format!("no connection within {} s", READY_TIMEOUT.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
            })
        })
    }
}
