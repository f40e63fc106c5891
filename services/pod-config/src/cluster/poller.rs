//! Polling of objects that nodes can get but not watch; more often while a change is pending.

use std::time::Duration;

use polylet_api::{ApiErrorKind, RetryTimer, random};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::connection_pool::ConnectionPool;
use super::request::{self, ApiRequestError};
use super::watcher::{EventHandler, WatchTarget};
use crate::core::cluster::kinds::percent_encode;
use crate::core::cluster::poll::{is_pending, poll_interval};

/// Delays between retries.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_FORBIDDEN_DELAY: Duration = Duration::from_secs(1);

/// An [`EventHandler`] of one polled object.
pub(super) trait PolledObject: EventHandler {
    /// Kind of the object.
    fn kind_name(&self) -> &'static str;
    /// The last value, if the object exists.
    fn value(&self) -> Option<&Value>;
}

/// Gets one object repeatedly; `refresh` requests a poll without delay.
pub(super) async fn poll(
    pool: &ConnectionPool,
    target: &WatchTarget,
    refresh: &Notify,
    object: &mut impl PolledObject,
) {
    let name = target.name.as_deref().unwrap_or_default();
    let path = format!("{}/{}", target.path, percent_encode(name));
    let mut retry = RetryTimer::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    let mut forbidden_retry = RetryTimer::new(MIN_RETRY_DELAY, MAX_FORBIDDEN_DELAY);
    let mut unchanged_polls = 0;
    loop {
        if let Some(message) = pool.health.backing_off() {
            object.handle_error(&ApiRequestError::unreachable(message));
            pool.health.wait_until_available().await;
        }
        let before = object.value().cloned();
        match get(pool, &path).await {
            Ok(value) => {
                retry.succeeded();
                forbidden_retry.succeeded();
                object.handle_list(&mut value.into_iter()).await;
            }
            Err(error) => {
                object.handle_error(&error);
                // An object that no pod on this node refers to yet is forbidden.
                let retry = match error.kind {
                    ApiErrorKind::Forbidden => &mut forbidden_retry,
                    _ => &mut retry,
                };
                retry.failed(error.kind.retry_after());
                retry.wait().await;
                continue;
            }
        }
        let pending = is_pending(object.kind_name(), object.value());
        // A change is often followed by another one.
        unchanged_polls = if object.value() == before.as_ref() {
            unchanged_polls + 1
        } else {
            0
        };
        // With jitter, so that objects first requested together are not always polled together.
        let interval = poll_interval(pending.then_some(unchanged_polls));
        tokio::select! {
            () = sleep(interval.mul_f64(1.0 + random() / 2.0)) => {}
            () = refresh.notified() => {}
        }
    }
}

async fn get(pool: &ConnectionPool, path: &str) -> Result<Option<Value>, ApiRequestError> {
    match pool.request(path, None).await {
        Ok(bytes) => request::parse(&bytes).map(Some),
        Err(error) if error.kind == ApiErrorKind::NotFound && !error.unserved => Ok(None),
        Err(error) => Err(error),
    }
}
