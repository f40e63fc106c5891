//! `/healthz`: this process answers.

use axum::Router;
use axum::routing::get;

/// The health paths.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/healthz", get(ok))
        .route("/healthz/ping", get(ok))
}

async fn ok() -> &'static str {
    "ok"
}
