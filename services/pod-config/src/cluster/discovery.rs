//! Discovery of the served version of a kind. Requests for objects do not tell: servers respond with
//! 403 for some kinds that they do not serve.

use std::time::Duration;

use polylet_api::{ApiErrorKind, RetryTimer};
use serde_json::Value;
use tokio::time::sleep;

use super::connection_pool::ConnectionPool;
use super::request::{self, ApiRequestError};
use super::watcher::EventHandler;
use crate::core::cluster::kinds::ApiKind;

/// Delays between retries.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Interval while no version is served, which changes only when the server is restarted.
const UNSERVED_INTERVAL: Duration = Duration::from_secs(30);

/// The newest version that the server serves. Waits until there is one.
pub(crate) async fn wait_until_served(
    pool: &ConnectionPool,
    kind: ApiKind,
    handler: &mut impl EventHandler,
) -> ApiKind {
    let mut retry = RetryTimer::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
    loop {
        if let Some(message) = pool.health.backing_off() {
            handler.handle_error(&ApiRequestError::unreachable(message));
            pool.health.wait_until_available().await;
        }
        match newest_version(pool, kind).await {
            Ok(Some(kind)) => return kind,
            Ok(None) => {
                handler.handle_error(&ApiRequestError {
                    kind: ApiErrorKind::NotFound,
                    message: kind.unserved_message(),
                    unserved: true,
                    pod_not_cached: false,
                });
                retry.succeeded();
                sleep(UNSERVED_INTERVAL).await;
            }
            Err(error) => {
                handler.handle_error(&error);
                retry.failed(None);
                retry.wait().await;
            }
        }
    }
}

async fn newest_version(
    pool: &ConnectionPool,
    kind: ApiKind,
) -> Result<Option<ApiKind>, ApiRequestError> {
    for (base, kind) in kind.versions() {
        match pool.request(base, None).await {
            Ok(bytes) => {
                if kind.is_served_in(&request::parse::<Value>(&bytes)?) {
                    return Ok(Some(kind));
                }
            }
            Err(error) if error.kind == ApiErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
