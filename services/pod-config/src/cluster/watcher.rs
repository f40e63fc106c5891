//! Lists and watches one collection, or one object, in the order of
//! [`reflector`](crate::core::cluster::reflector), and passes on what it receives.
//!
//! Why not `kube::runtime::watcher`: it decodes each object to a type and its `Store` keeps the decoded
//! objects, while this service needs their JSON, to serve and to persist. With 1,000 pods of 9.5 kB,
//! the `Store` holds 93 MB (`Pod`, which also loses unknown fields) or 122 MB (`DynamicObject`), and
//! another 16 MB of JSON to serve them; the canonical JSON without bookkeeping fields takes 7.5 MB.
//! Processor time is about the same, 0.2 to 0.3 s. Besides, it sends its requests itself: without the
//! limit of concurrent requests that all watches here share, and without the `Retry-After` header of
//! responses that are no `Status`.

use std::future::Future;
use std::time::Duration;

use polylet_api::kube::Client;
use polylet_api::kube::core::Status;
use polylet_api::{ApiErrorKind, RetryTimer, random};
use polylet_kit::report;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::connection_pool::{ConnectionPool, Lease};
use super::request::{self, ApiRequestError, ListResponse, WatchEvent};
use crate::core::cluster::kinds::percent_encode;
use crate::core::cluster::reflector::{
    NextRequest, Reflector, ReflectorRequest, ReflectorResponse,
};

/// Delays between retries, which are short enough to notice a recovered server within seconds.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// When subscribers are told that there is no first response yet.
const SLOW_START: Duration = Duration::from_secs(2);
/// Timeout of a watch in seconds, and its jitter. Lost connections are detected by pings, so that
/// long watches do no harm.
const WATCH_TIMEOUT: (u64, u64) = (1800, 1800);
/// A watch that lasted so long was a success even without events.
const SUCCESSFUL_WATCH: Duration = Duration::from_secs(8);
/// Watches are restarted over this period when the credentials were renewed.
const RESTART_JITTER: Duration = Duration::from_secs(5);

/// A collection, or one object of it.
pub(crate) struct WatchTarget {
    /// Path of the collection.
    pub(crate) path: String,
    /// Field selector: field and value.
    pub(crate) selector: Option<(&'static str, String)>,
    /// Name of the object, if it is one.
    pub(crate) name: Option<String>,
}

/// Receives the objects of a watch.
pub(crate) trait EventHandler {
    /// Handles a list, which replaces everything received before. Handlers that do much work per
    /// object yield in between.
    fn handle_list(
        &mut self,
        objects: &mut (dyn Iterator<Item = Value> + Send),
    ) -> impl Future<Output = ()> + Send;
    /// Handles an added or modified object.
    fn handle_upsert(&mut self, object: Value);
    /// Handles a deleted object.
    fn handle_delete(&mut self, object: Value);
    /// Handles the start of a watch.
    fn handle_watch_started(&mut self) {}
    /// Handles a failed request.
    fn handle_error(&mut self, error: &ApiRequestError);
    /// Handles a first response that takes long.
    fn handle_slow_start(&mut self);
    /// Whether the watch can end.
    fn is_complete(&self) -> bool {
        false
    }
    /// Whether requests are sent during an outage: so does the watch that detects its end.
    fn ignores_outage(&self) -> bool {
        false
    }
}

/// Lists and watches until the handler is complete.
pub(crate) async fn watch(
    pool: &ConnectionPool,
    target: &WatchTarget,
    handler: &mut impl EventHandler,
) {
    let mut watcher = Watcher {
        lease: pool.lease(),
        pool,
        target,
        reflector: Reflector::new(target.name.is_some()),
        retry: RetryTimer::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY),
        responded: false,
    };
    while !handler.is_complete() {
        match watcher.step(handler).await {
            NextRequest::Immediately => {}
            NextRequest::AfterBackoff(retry_after) => {
                watcher.retry.failed(retry_after);
                watcher.wait_for_retry().await;
            }
        }
    }
}

struct Watcher<'a> {
    lease: Lease,
    pool: &'a ConnectionPool,
    target: &'a WatchTarget,
    reflector: Reflector,
    retry: RetryTimer,
    responded: bool,
}

impl Watcher<'_> {
    async fn step(&mut self, handler: &mut impl EventHandler) -> NextRequest {
        if !handler.ignores_outage()
            && let Some(message) = self.pool.health.backing_off()
        {
            handler.handle_error(&ApiRequestError::unreachable(message));
            self.pool.health.wait_until_available().await;
            // All watches wait for this moment.
            sleep(MIN_RETRY_DELAY.mul_f64(random() * 10.0)).await;
        }
        let client = match self.lease.connection.client().await {
            Ok(client) => client,
            Err(error) => {
                handler.handle_error(&ApiRequestError::unreachable(report(&error)));
                self.lease.connection.ready().await
            }
        };
        match self.reflector.next_request() {
            ReflectorRequest::Watch { from } => self.watch(&client, &from, handler).await,
            ReflectorRequest::Get => self.get_or_list(&client, true, handler).await,
            ReflectorRequest::List => self.get_or_list(&client, false, handler).await,
        }
    }

    /// Waits for the retry delay, or for new credentials.
    async fn wait_for_retry(&mut self) {
        let credentials = &mut self.lease.credentials;
        tokio::select! {
            () = self.retry.wait() => {}
            _ = credentials.changed() => {}
        }
    }

    async fn get_or_list(
        &mut self,
        client: &Client,
        single: bool,
        handler: &mut impl EventHandler,
    ) -> NextRequest {
        let path = match &self.target.name {
            Some(name) if single => format!("{}/{}", self.target.path, percent_encode(name)),
            _ => format!("{}{}", self.target.path, self.query(None)),
        };
        let request = async {
            let _permit = self.lease.request_permit().await;
            request::get(client, &path).await
        };
        let response = {
            let mut request = std::pin::pin!(request);
            if self.responded {
                request.await
            } else {
                match timeout(SLOW_START, &mut request).await {
                    Ok(response) => response,
                    Err(_) => {
                        handler.handle_slow_start();
                        request.await
                    }
                }
            }
        };
        let version = match response {
            Ok(bytes) => handle_response(bytes, single, handler).await,
            Err(error) => Err(error),
        };
        match version {
            Ok(version) => {
                self.responded = true;
                self.reflector.handle_response(if single {
                    ReflectorResponse::Got(Some(version))
                } else {
                    ReflectorResponse::Listed(version)
                })
            }
            Err(error) if single && error.kind == ApiErrorKind::NotFound && !error.unserved => {
                self.responded = true;
                handler.handle_list(&mut std::iter::empty()).await;
                self.reflector.handle_response(ReflectorResponse::Got(None))
            }
            Err(error) => self.handle_failure(handler, &error),
        }
    }

    async fn watch(
        &mut self,
        client: &Client,
        from: &str,
        handler: &mut impl EventHandler,
    ) -> NextRequest {
        let path = format!("{}{}", self.target.path, self.query(Some(from)));
        self.lease.credentials.borrow_and_update();
        let mut stream = match request::watch(client, &path).await {
            Ok(stream) => stream,
            Err(error) => return self.handle_failure(handler, &error),
        };
        handler.handle_watch_started();
        let started = Instant::now();
        let next = self.read_events(&mut stream, handler).await;
        if started.elapsed() >= SUCCESSFUL_WATCH {
            self.retry.succeeded();
        }
        next
    }

    /// Handles the events of a watch until its end.
    async fn read_events(
        &mut self,
        stream: &mut request::WatchLines,
        handler: &mut impl EventHandler,
    ) -> NextRequest {
        loop {
            let line = tokio::select! {
                line = stream.next() => line,
                _ = self.lease.credentials.changed() => {
                    sleep(RESTART_JITTER.mul_f64(random())).await;
                    // Ended by the client: the next watch starts without backoff.
                    self.reflector.handle_response(ReflectorResponse::Event(String::new()));
                    return self.reflector.handle_response(ReflectorResponse::Ended);
                }
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return self.reflector.handle_response(ReflectorResponse::Ended),
                Err(error) => return self.handle_failure(handler, &error),
            };
            match handle_line(&line, handler) {
                Ok(Some(version)) => {
                    self.retry.succeeded();
                    self.reflector
                        .handle_response(ReflectorResponse::Event(version));
                    if handler.is_complete() {
                        return NextRequest::Immediately;
                    }
                }
                Ok(None) => {}
                Err(error) => return self.handle_failure(handler, &error),
            }
        }
    }

    fn handle_failure(
        &mut self,
        handler: &mut impl EventHandler,
        error: &ApiRequestError,
    ) -> NextRequest {
        if error.kind == ApiErrorKind::Unauthorized {
            self.lease.connection.invalidate();
        }
        // An expired resource version is no outage.
        if error.kind != ApiErrorKind::Gone {
            handler.handle_error(error);
        }
        self.reflector
            .handle_response(ReflectorResponse::Failed(error.kind))
    }

    fn query(&self, from: Option<&str>) -> String {
        let mut parts = Vec::new();
        if let Some((field, value)) = &self.target.selector {
            parts.push(format!("fieldSelector={field}%3D{}", percent_encode(value)));
        }
        if let Some(from) = from {
            let seconds = WATCH_TIMEOUT.0 + (WATCH_TIMEOUT.1 as f64 * random()) as u64;
            parts.push(format!(
                "watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
                percent_encode(from)
            ));
        }
        if parts.is_empty() {
            String::new()
        } else {
            format!("?{}", parts.join("&"))
        }
    }
}

/// Handles an object or a list; returns its resource version.
async fn handle_response(
    bytes: Vec<u8>,
    single: bool,
    handler: &mut impl EventHandler,
) -> Result<String, ApiRequestError> {
    if single {
        let object: Value = request::parse(&bytes)?;
        drop(bytes);
        if object.get("metadata").is_none() {
            let message = "the API server's response is no object";
            return Err(ApiRequestError::new(ApiErrorKind::ServerError, message));
        }
        let version = resource_version(&object);
        handler.handle_list(&mut std::iter::once(object)).await;
        return Ok(version);
    }
    let list = ListResponse::parse(bytes).await?;
    handler.handle_list(&mut list.items()).await;
    Ok(list.version)
}

/// Handles one line of a watch; returns its resource version.
pub(crate) fn handle_line(
    line: &[u8],
    handler: &mut impl EventHandler,
) -> Result<Option<String>, ApiRequestError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let WatchEvent { kind, object } = request::parse(line)?;
    if kind == "ERROR" {
        let status = serde_json::from_value::<Status>(object).unwrap_or_default();
        return Err(ApiRequestError::from_status(status));
    }
    let version = resource_version(&object);
    match kind.as_str() {
        "ADDED" | "MODIFIED" => handler.handle_upsert(object),
        "DELETED" => handler.handle_delete(object),
        // A bookmark, or a type unknown to this build.
        _ => {}
    }
    Ok(Some(version))
}

fn resource_version(object: &Value) -> String {
    let version = object.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str).unwrap_or_default();
    version.to_owned()
}
