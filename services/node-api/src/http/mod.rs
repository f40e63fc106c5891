//! The paths of the node API.

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
use crate::config::{Access, Settings};
use crate::peers::Peers;
use crate::reviews::Reviews;

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) peers: Peers,
    pub(crate) node: String,
    pub(crate) pod_logs: PathBuf,
}

impl State {
    pub(crate) fn new(ctx: &Ctx, settings: &Settings) -> Self {
        Self {
            peers: Peers::new(ctx),
            node: ctx.node_name().to_owned(),
            pod_logs: settings.pod_logs.clone(),
        }
    }
}

/// The node API, every path behind authentication and authorisation.
pub(crate) fn node(state: State, access: Access, reviews: Option<Reviews>) -> Router {
    let guarded = Guard { access, reviews };
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
        .layer(middleware::from_fn_with_state(guarded, guard))
}

/// What the read-only port serves.
pub(crate) fn read_only(state: State) -> Router {
    shared(state)
}

fn shared(state: State) -> Router {
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

/// A peer's refusal as an HTTP answer.
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
