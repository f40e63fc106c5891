use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::Access;
use crate::renewal::Files;

/// How long the server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection is asked for a sign of life this often …
const PING: Duration = Duration::from_secs(5);
/// … and given up when none comes for as long.
const PONG: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or makes no sense.
    #[error("the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: KubeconfigError,
    },
    /// Its certificates or keys cannot be used.
    #[error("the credentials that the kubeconfig {path} names")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A client of the API server on a connection of its own. Clones share both.
#[derive(Clone)]
pub struct Connection {
    access: Access,
    made: Arc<Mutex<Option<Made>>>,
}

struct Made {
    client: Client,
    files: Files,
}

impl Connection {
    /// Nothing is opened before the first request.
    pub fn new(access: Access) -> Connection {
        Connection {
            access,
            made: Arc::default(),
        }
    }

    /// The client of the kubeconfig as it is now: another one once the file, or a certificate that it
    /// names, has changed. Requests under way keep the client that they began with.
    ///
    /// # Errors
    /// While the kubeconfig cannot be used: it is read anew at the next call.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.current() {
            return Ok(client);
        }
        let path = self.access.kubeconfig().to_owned();
        let wrong = |source| ConnectError::Kubeconfig {
            path: path.clone(),
            source,
        };
        // Before the files are read: what changes meanwhile is noticed at the next call.
        let kubeconfig = Kubeconfig::read_from(&path).map_err(wrong)?;
        let files = Files::of(&path, Some(&kubeconfig));
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(wrong)?;
        let client = client_of(config, self.access.user_agent()).map_err(|source| {
            ConnectError::Credentials {
                path: path.clone(),
                source: Box::new(source),
            }
        })?;
        let made = Made {
            client: client.clone(),
            files,
        };
        *self.made() = Some(made);
        Ok(client)
    }

    /// The same, waited for: while the kubeconfig is missing or wrong, until it changes.
    pub async fn ready(&self) -> Client {
        let mut told = String::new();
        loop {
            let before = Files::of(self.access.kubeconfig(), None);
            match self.client().await {
                Ok(client) => return client,
                Err(error) => {
                    let why = polylet_kit::report(&error);
                    if why != told {
                        tracing::warn!("the API server is not reached: {why}");
                        told = why;
                    }
                    before.stirred().await;
                }
            }
        }
    }

    /// Resolves when the kubeconfig or a certificate has changed since the present client was made:
    /// long watches are begun anew then, as the old certificate may be about to end.
    pub async fn renewed(&self) {
        let files = self.made().as_ref().map(|made| made.files.clone());
        let files = files.unwrap_or_else(|| Files::of(self.access.kubeconfig(), None));
        files.stirred().await;
    }

    /// The server did not take our credentials: they are read anew for the next request.
    pub fn refused(&self) {
        *self.made() = None;
    }

    fn current(&self) -> Option<Client> {
        let made = self.made();
        let made = made.as_ref().filter(|made| !made.files.changed())?;
        Some(made.client.clone())
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Option<Made>> {
        // It is one value, replaced whole.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_of(mut config: Config, user_agent: &str) -> kube::Result<Client> {
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
    let connector = connector.enable_all_versions().wrap_connector(tcp);
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
        .map_err(BoxError::from)
        .service(service);
    Ok(Client::new(service, config.default_namespace.clone()))
}
