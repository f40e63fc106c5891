//! Connections to the API server, shared by all watches and requests.
//!
//! An HTTP/2 connection carries a limited number of concurrent requests (250 by the server's
//! default), and each watch is one that does not end. Each connection takes a share of the watches;
//! another one is opened when all are full.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polylet_api::{ApiConnection, ApiErrorKind, ClientConfig};
use polylet_kit::report;
use polylet_schedule::Backoff;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::api_health::ApiHealth;
use super::request::{self, ApiRequestError};

/// Watches per connection.
const WATCHES_PER_CONNECTION: usize = 100;
/// Concurrent requests other than watches: as many pods may start at the same time.
const MAX_REQUESTS: usize = 64;
/// How long the API server may take to learn of a new pod and of the objects that it refers to.
const NEW_POD_GRACE: Duration = Duration::from_secs(2);
/// Delays between requests within that time.
const NEW_POD_RETRY: Backoff = Backoff::new(Duration::from_millis(20), NEW_POD_GRACE);

/// All connections. Clones share them.
#[derive(Clone)]
pub(crate) struct ConnectionPool {
    config: ClientConfig,
    connections: Arc<Mutex<Vec<Pooled>>>,
    requests: Arc<Semaphore>,
    /// Number of credential changes.
    credentials: Arc<watch::Sender<u64>>,
    pub(crate) health: ApiHealth,
}

/// A connection and its permits for watches.
type Pooled = (ApiConnection, Arc<Semaphore>);

/// A connection with a permit for one watch.
pub(crate) struct Lease {
    pub(crate) connection: ApiConnection,
    pub(crate) credentials: watch::Receiver<u64>,
    requests: Arc<Semaphore>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionPool {
    pub(crate) fn new(config: ClientConfig) -> ConnectionPool {
        let pool = ConnectionPool {
            config,
            connections: Arc::default(),
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            credentials: Arc::new(watch::Sender::new(0)),
            health: ApiHealth::new(),
        };
        drop(pool.lease());
        pool
    }

    /// A connection with capacity for a watch.
    pub(crate) fn lease(&self) -> Lease {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = connections.iter().find_map(|(connection, permits)| {
            let permit = permits.clone().try_acquire_owned().ok()?;
            Some((connection.clone(), Some(permit)))
        });
        let (connection, permit) = found.unwrap_or_else(|| {
            let connection = ApiConnection::new(self.config.clone());
            let permits = Arc::new(Semaphore::new(WATCHES_PER_CONNECTION));
            connections.push((connection.clone(), permits.clone()));
            (connection, permits.try_acquire_owned().ok())
        });
        Lease {
            connection,
            credentials: self.credentials.subscribe(),
            requests: self.requests.clone(),
            _permit: permit,
        }
    }

    /// Changes when the credentials have been renewed.
    pub(crate) fn credentials(&self) -> watch::Receiver<u64> {
        self.credentials.subscribe()
    }

    /// The first connection, which requests other than watches use.
    fn first(&self) -> Option<ApiConnection> {
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections
            .first()
            .map(|(connection, _)| connection.clone())
    }

    /// Sends a GET, or a POST when there is a body; returns the response body.
    pub(crate) async fn request(
        &self,
        path: &str,
        body: Option<&str>,
    ) -> Result<Vec<u8>, ApiRequestError> {
        let Some(connection) = self.first() else {
            return Err(ApiRequestError::unreachable("no connection"));
        };
        let client = connection.client().await;
        let client = client.map_err(|error| ApiRequestError::unreachable(report(&error)))?;
        let _permit = self.requests.clone().acquire_owned().await.ok();
        let response = match body {
            Some(body) => request::post(&client, path, body.to_owned()).await,
            None => request::get(&client, path).await,
        };
        if matches!(&response, Err(error) if error.kind == ApiErrorKind::Unauthorized) {
            connection.invalidate();
        }
        response
    }

    /// Like [`ConnectionPool::request`], but retries for a while when the API server does not know yet
    /// that the pod was bound: its Node authorizer forbids the request, or its admission does not
    /// find the pod.
    pub(crate) async fn request_for_new_pod(
        &self,
        path: &str,
        body: Option<&str>,
    ) -> Result<Vec<u8>, ApiRequestError> {
        let started = Instant::now();
        let mut backoff = NEW_POD_RETRY;
        loop {
            match self.request(path, body).await {
                Err(error)
                    if (error.kind == ApiErrorKind::Forbidden || error.pod_not_cached)
                        && started.elapsed() < NEW_POD_GRACE =>
                {
                    sleep(backoff.next_delay()).await;
                }
                result => return result,
            }
        }
    }

    /// Notifies all watches when the credentials have been renewed.
    pub(crate) async fn watch_credentials(self) {
        let Some(first) = self.first() else {
            return std::future::pending().await;
        };
        loop {
            first.credentials_changed().await;
            let client = first.ready().await;
            drop(client);
            self.credentials.send_modify(|count| *count += 1);
        }
    }
}

impl Lease {
    /// Waits for a permit for a request other than a watch.
    pub(crate) async fn request_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().acquire_owned().await.ok()
    }
}
