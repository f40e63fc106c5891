//! `/healthz` and its checks: whether this process responds, and whether pods are synced. `/metrics/slis`
//! counts their results.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use polylet_kit::CancellationToken;

use super::not_served::NO_SNIFF;
use crate::core::health::{self, CheckCounts, CheckResult, OutOfStep};
use crate::peers::PeerClients;

/// How often the services that sync pods are observed, apart from requests.
const INTERVAL: Duration = Duration::from_secs(20);

/// The state of the checks. Clones share it.
#[derive(Clone)]
pub(crate) struct HealthChecks {
    peers: PeerClients,
    start: Instant,
    state: Arc<Mutex<CheckState>>,
}

#[derive(Default)]
struct CheckState {
    out_of_step: OutOfStep,
    counts: BTreeMap<&'static str, CheckCounts>,
}

impl HealthChecks {
    pub(crate) fn new(peers: PeerClients) -> Self {
        Self {
            peers,
            start: Instant::now(),
            state: Arc::default(),
        }
    }

    /// Observes the services now and then until the drain, so that a request knows for how long they have
    /// been out of step.
    pub(crate) async fn watch(self, drain: CancellationToken) {
        while !drain.is_cancelled() {
            self.observe().await;
            tokio::select! {
                () = drain.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn observe(&self) {
        let in_step = self.peers.in_step().await;
        let now = self.start.elapsed();
        self.lock().out_of_step.observe(in_step, now);
    }

    async fn run(&self) -> Vec<CheckResult> {
        self.observe().await;
        let now = self.start.elapsed();
        let mut state = self.lock();
        let checks = vec![
            CheckResult {
                name: "ping",
                result: Ok(()),
            },
            CheckResult {
                name: "log",
                result: Ok(()),
            },
            CheckResult {
                name: "syncloop",
                result: state.out_of_step.check(now),
            },
        ];
        for check in &checks {
            let counts = state.counts.entry(check.name).or_default();
            counts.count(check.result.is_ok());
        }
        checks
    }

    fn lock(&self) -> MutexGuard<'_, CheckState> {
        // No panic leaves it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The health endpoints.
pub(crate) fn router(checks: HealthChecks) -> Router {
    Router::new()
        .route("/healthz", any(all))
        .route("/healthz/ping", any(ok))
        .route("/healthz/log", any(ok))
        .route("/healthz/syncloop", any(syncloop))
        .with_state(checks)
}

/// The results of the checks as metrics. DELETE begins to count anew.
pub(crate) async fn slis(State(checks): State<HealthChecks>, method: Method) -> Response {
    if method == Method::DELETE {
        checks.lock().counts.clear();
        return "metrics reset\n".into_response();
    }
    let text = health::slis(&checks.lock().counts);
    ([(CONTENT_TYPE, TEXT)], text).into_response()
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

async fn all(
    State(checks): State<HealthChecks>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let verbose = query.iter().any(|(name, _)| name == "verbose");
    let excluded = query.into_iter().filter(|(name, _)| name == "exclude");
    let excluded: Vec<String> = excluded.map(|(_, value)| value).collect();
    let (passed, text) = health::report(&checks.run().await, verbose, &excluded);
    let code = if passed {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    (code, [(X_CONTENT_TYPE_OPTIONS, NO_SNIFF)], text).into_response()
}

async fn ok() -> &'static str {
    "ok"
}

async fn syncloop(State(checks): State<HealthChecks>) -> Response {
    let mut results = checks.run().await.into_iter();
    match results.find(|check| check.name == "syncloop") {
        Some(CheckResult {
            result: Err(error), ..
        }) => {
            let message = format!("internal server error: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
        _ => "ok".into_response(),
    }
}
