//! `/healthz`: whether this process responds.

use axum::Router;
use axum::routing::get;

/// The health endpoints.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/healthz", get(ok))
        .route("/healthz/ping", get(ok))
}

async fn ok() -> &'static str {
    "ok"
}
