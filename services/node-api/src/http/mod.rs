//! The HTTP endpoints of the node API.

pub(crate) mod health;
pub(crate) mod logs;
mod metrics;
mod pods;
mod stats;

use std::path::PathBuf;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
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
}

impl HandlerState {
    pub(crate) fn new(ctx: &Ctx, config: &Config) -> Self {
        Self {
            peers: PeerClients::new(ctx),
            node: ctx.node_name().to_owned(),
            pod_logs: config.pod_logs.clone(),
        }
    }
}

/// The node API: every endpoint requires authentication and authorization.
pub(crate) fn node(state: HandlerState, access: AccessPolicy, reviews: Option<Reviews>) -> Router {
    let guard_state = Guard { access, reviews };
    shared(state.clone())
        .merge(
            Router::new()
                .route("/runningpods/", get(pods::running))
                .route("/runningpods", get(pods::running))
                .route(
                    "/containerLogs/{namespace}/{pod}/{container}",
                    get(logs::get),
                )
                .with_state(state),
        )
        .layer(middleware::from_fn_with_state(guard_state, guard))
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
