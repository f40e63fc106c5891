//! The HTTP endpoints of the node API.

pub(crate) mod health;
pub(crate) mod logs;
mod metrics;
mod pods;
mod stats;

use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use polylet_kit::Ctx;
use tonic::Code;

use crate::auth::{Guard, guard};
use crate::config::{AccessPolicy, Config};
use crate::peers::PeerClients;
use crate::reviews::Reviews;

/// Shared by all handlers.
#[derive(Clone)]
pub(crate) struct HandlerState {
    pub(crate) peers: PeerClients,
    pub(crate) node: String,
    pub(crate) pod_logs: PathBuf,
    /// `volumeStatsAggPeriod`: how old statistics of volumes may be.
    pub(crate) max_volume_age: Duration,
    /// The feature gate `PodLogsQuerySplitStreams`.
    pub(crate) split_streams: bool,
}

impl HandlerState {
    pub(crate) fn new(ctx: &Ctx, config: &Config) -> Self {
        Self {
            peers: PeerClients::new(ctx),
            node: ctx.node_name().to_owned(),
            pod_logs: config.pod_logs.clone(),
            max_volume_age: ctx.config().kubelet.volume_stats_agg_period,
            split_streams: ctx.config().kubelet.has_gate("PodLogsQuerySplitStreams"),
        }
    }
}

/// The node API: every endpoint requires authentication and authorization.
pub(crate) fn node(
    state: HandlerState,
    access: AccessPolicy,
    debugging: bool,
    reviews: Option<Reviews>,
) -> Router {
    let guard_state = Guard { access, reviews };
    let debug = if debugging {
        debug(state.clone())
    } else {
        debugging_disabled()
    };
    shared(state)
        .merge(debug)
        .layer(middleware::from_fn_with_state(guard_state, guard))
}

/// The endpoints that `enableDebuggingHandlers` is about.
fn debug(state: HandlerState) -> Router {
    Router::new()
        .route("/runningpods/", get(pods::running))
        .route("/runningpods", get(pods::running))
        .route(
            "/containerLogs/{namespace}/{pod}/{container}",
            get(logs::get),
        )
        .with_state(state)
}

/// The same, switched off: as upstream, including those that are not served here at all.
fn debugging_disabled() -> Router {
    let disabled = || async {
        let message = "Debug endpoints are disabled.\n";
        (StatusCode::METHOD_NOT_ALLOWED, message)
    };
    let paths = [
        "/run/",
        "/exec/",
        "/attach/",
        "/portForward/",
        "/containerLogs/",
        "/runningpods/",
        "/debug/pprof/",
        "/logs/",
    ];
    paths.into_iter().fold(Router::new(), |router, path| {
        router
            .route(path, any(disabled))
            .route(&format!("{path}{{*rest}}"), any(disabled))
    })
}

/// The endpoints of the read-only port.
pub(crate) fn read_only(state: HandlerState) -> Router {
    shared(state)
}

fn shared(state: HandlerState) -> Router {
    Router::new()
        .route("/pods", get(pods::all))
        .route("/pods/", get(pods::all))
        .route("/stats/summary", get(stats::summary).post(stats::summary))
        .route("/stats/summary/", get(stats::summary))
        .route("/metrics", get(metrics::node))
        .route("/metrics/resource", get(metrics::resource))
        .route("/metrics/probes", get(metrics::probes))
        .with_state(state)
        .merge(health::router())
}

/// An error of a peer as an HTTP response.
pub(crate) struct PeerError(pub(crate) tonic::Status);

impl IntoResponse for PeerError {
    fn into_response(self) -> Response {
        let code = match self.0.code() {
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::Unavailable | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (code, self.0.message().to_owned()).into_response()
    }
}

impl From<tonic::Status> for PeerError {
    fn from(status: tonic::Status) -> Self {
        Self(status)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn debug_endpoints_can_be_disabled() {
        for (method, path) in [
            ("GET", "/containerLogs/default/web/main"),
            ("GET", "/runningpods/"),
            ("POST", "/exec/default/web/main"),
            ("GET", "/logs/"),
            ("GET", "/debug/pprof/heap"),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            let response = debugging_disabled().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
            let body = to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(body, "Debug endpoints are disabled.\n");
        }
    }
}
