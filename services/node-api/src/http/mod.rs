//! The HTTP endpoints of the node API.

mod checkpoint;
mod flags;
pub(crate) mod health;
mod journal;
mod log_directories;
mod log_stream;
pub(crate) mod logs;
mod metrics;
mod node_logs;
pub(crate) mod not_served;
mod pods;
mod pprof;
mod request_counts;
mod stats;
mod streams;
pub(crate) mod switches;
mod zpages;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::X_CONTENT_TYPE_OPTIONS;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use polylet_cri::log::LogWatcher;
use polylet_kit::Ctx;
use serde_json::Value;
use tonic::Code;

use self::checkpoint::CheckpointClient;
use self::health::HealthChecks;
use self::log_directories::LogDirectories;
use self::log_stream::LogThreads;
use self::not_served::{NO_SNIFF, with_upstream_answers};
use self::request_counts::IsReadOnly;
use self::switches::disabled;
use self::zpages::ZPages;
use crate::auth::{Guard, guard};
use crate::config::{AccessPolicy, Config, Switches};
use crate::core::configz;
use crate::peers::PeerClients;
use crate::published_metrics::PublishedMetrics;
use crate::reviews::Reviews;
use crate::streaming::{StreamingClient, Streams};

/// The directory of the node's logs.
const NODE_LOGS: &str = "/var/log";

/// Shared by all handlers.
#[derive(Clone)]
pub(crate) struct HandlerState {
    pub(crate) peers: PeerClients,
    pub(crate) published: PublishedMetrics,
    pub(crate) node: String,
    pub(crate) pod_logs: PathBuf,
    pub(crate) log_watcher: LogWatcher,
    log_threads: LogThreads,
    /// `volumeStatsAggPeriod`: how old statistics of volumes may be.
    pub(crate) max_volume_age: Duration,
    /// The feature gate `PodLogsQuerySplitStreams`.
    pub(crate) split_streams: bool,
    pub(crate) streaming: StreamingClient,
    checkpoints: CheckpointClient,
    /// `enableSystemLogQuery`
    system_log_query: bool,
    pub(crate) streams: Streams,
    pub(crate) health: HealthChecks,
    pub(crate) started_at: SystemTime,
    /// The response of `/configz`.
    configuration: Arc<Value>,
    zpages: Arc<ZPages>,
}

impl HandlerState {
    pub(crate) fn new(
        ctx: &Ctx,
        config: &Config,
        streams: Streams,
        published: PublishedMetrics,
    ) -> Self {
        let peers = PeerClients::new(ctx);
        let configuration = serde_json::to_value(&ctx.config().kubelet).unwrap_or_default();
        Self {
            health: HealthChecks::new(peers.clone()),
            configuration: Arc::new(configz::response(configuration)),
            zpages: Arc::new(ZPages::new(ctx)),
            peers,
            published,
            started_at: SystemTime::now(),
            node: ctx.node_name().to_owned(),
            pod_logs: config.pod_logs.clone(),
            log_watcher: LogWatcher::default(),
            log_threads: LogThreads::default(),
            max_volume_age: ctx.config().kubelet.volume_stats_agg_period,
            split_streams: ctx.config().kubelet.has_gate("PodLogsQuerySplitStreams"),
            streaming: StreamingClient::new(ctx),
            checkpoints: CheckpointClient::new(ctx),
            system_log_query: ctx.config().kubelet.enable_system_log_query,
            streams,
        }
    }
}

/// The node API: every endpoint requires authentication and authorization.
pub(crate) fn node(
    state: HandlerState,
    access: AccessPolicy,
    switches: Switches,
    reviews: Option<Reviews>,
) -> Router {
    let guard_state = Guard { access, reviews };
    let mut router = shared(state.clone());
    if switches.debugging {
        if switches.system_logs {
            let directories = LogDirectories::new(NODE_LOGS, &state.pod_logs);
            let journalctl = state.system_log_query.then(|| "journalctl".into());
            router = router.merge(node_logs::router(directories, journalctl));
        }
        if switches.checkpoints {
            let path = "/checkpoint/{namespace}/{pod}/{container}";
            router = router.merge(
                Router::new()
                    .route(path, post(checkpoint::post))
                    .with_state(state.clone()),
            );
        }
        if switches.debug_flags {
            router = router.merge(flags::router(state.peers.services.clone()));
        }
        if switches.profiling {
            router = router.merge(pprof::router(state.peers.services.clone()));
        }
        router = router.merge(debug(state));
    }
    request_counts::register_counts();
    with_upstream_answers(router.merge(disabled(switches)))
        .layer(middleware::from_fn_with_state(guard_state, guard))
        // Those that are refused count, too.
        .layer(middleware::from_fn_with_state(
            IsReadOnly(false),
            request_counts::count,
        ))
}

/// The endpoints that `enableDebuggingHandlers` is about.
fn debug(state: HandlerState) -> Router {
    let zpages = zpages::router(&state.zpages);
    Router::new()
        .route("/configz", any(configz))
        .route("/runningpods/", get(pods::running))
        .route("/runningpods", get(pods::running))
        .route(
            "/containerLogs/{namespace}/{pod}/{container}",
            get(logs::get),
        )
        .merge(streaming())
        .with_state(state)
        .merge(zpages)
}

/// Streams of containers. Clients that speak WebSocket use GET, others POST.
fn streaming() -> Router<HandlerState> {
    let container = [
        "{namespace}/{pod}/{container}",
        "{namespace}/{pod}/{uid}/{container}",
    ];
    let pod = ["{namespace}/{pod}", "{namespace}/{pod}/{uid}"];
    let mut router = Router::new();
    for path in container {
        router = router
            .route(
                &format!("/exec/{path}"),
                get(streams::exec).post(streams::exec),
            )
            .route(
                &format!("/attach/{path}"),
                get(streams::attach).post(streams::attach),
            )
            .route(&format!("/run/{path}"), post(streams::run));
    }
    for path in pod {
        router = router.route(
            &format!("/portForward/{path}"),
            get(streams::port_forward).post(streams::port_forward),
        );
    }
    router
}

/// The endpoints of the read-only port.
pub(crate) fn read_only(state: HandlerState) -> Router {
    with_upstream_answers(shared(state)).layer(middleware::from_fn_with_state(
        IsReadOnly(true),
        request_counts::count,
    ))
}

fn shared(state: HandlerState) -> Router {
    Router::new()
        .route("/pods", get(pods::all))
        .route("/pods/", get(pods::all))
        .route("/stats/summary", get(stats::summary).post(stats::summary))
        .route("/stats/summary/", get(stats::summary).post(stats::summary))
        // Plain handlers upstream, which serve every method.
        .route("/metrics", any(metrics::node))
        .route("/metrics/cadvisor", any(metrics::cadvisor))
        .route("/metrics/resource", any(metrics::resource))
        .route("/metrics/probes", any(metrics::probes))
        .with_state(state.clone())
        .merge(
            Router::new()
                .route("/metrics/slis", any(health::slis))
                .with_state(state.health.clone()),
        )
        .merge(health::router(state.health))
}

/// The configuration in effect.
async fn configz(State(state): State<HandlerState>) -> impl IntoResponse {
    let header = [(X_CONTENT_TYPE_OPTIONS, NO_SNIFF)];
    (header, Json((*state.configuration).clone()))
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
