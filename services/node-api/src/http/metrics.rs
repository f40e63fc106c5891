//! `/metrics` and its paths.

use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use polylet_metrics::ExpositionFormat;
use polylet_wire::stats::v1::ExpositionKind;
use rustix::process::{Resource, getrlimit};

use super::{HandlerState, PeerError};
use crate::convert;
use crate::core::metrics::{self, ScrapedNode};
use crate::core::probes;

/// What the services have counted, pods and containers, and usage of volumes.
/// With exemplars for those who ask for OpenMetrics.
pub(crate) async fn node(
    State(state): State<HandlerState>,
    headers: HeaderMap,
) -> Result<Response, PeerError> {
    let format = negotiated(&headers);
    let now = SystemTime::now();
    let oldest = now.checked_sub(state.max_volume_age).unwrap_or(now);
    let (counted, states, summary) = tokio::join!(
        state.peers.metrics(),
        state.peers.runtime_states(),
        state.peers.stats.last_summary(oldest)
    );
    // Everything else is served even if a service is unavailable.
    let counts = convert::node_counts(&states.unwrap_or_default());
    let summary = summary.and_then(|json| serde_json::from_slice(&json).ok());
    let started_at = state.started_at.duration_since(SystemTime::UNIX_EPOCH);
    let facts = ScrapedNode {
        name: &state.node,
        version: env!("CARGO_PKG_VERSION"),
        started_at: started_at.as_ref().ok().map(Duration::as_secs_f64),
        max_files: getrlimit(Resource::Nofile).current.map(|max| max as f64),
    };
    let counted = counted.into_iter().chain(state.published.families());
    let counted = counted.filter_map(convert::counted_family);
    let text = metrics::node(
        format,
        &facts,
        &counts,
        counted.collect(),
        &summary.unwrap_or_default(),
    );
    let headers = [(CONTENT_TYPE, format.media_type()), (VARY, ACCEPT.as_str())];
    Ok((headers, text).into_response())
}

fn negotiated(headers: &HeaderMap) -> ExpositionFormat {
    let accepted = headers.get_all(ACCEPT).iter();
    let accepted: Vec<_> = accepted.filter_map(|value| value.to_str().ok()).collect();
    ExpositionFormat::negotiate(&accepted.join(","))
}

/// Usage of all cgroups, and of the machine.
pub(crate) async fn cadvisor(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let text = state
        .peers
        .stats
        .exposition(ExpositionKind::Cadvisor)
        .await?;
    Ok(respond(text))
}

/// Usage of the node, pods and containers.
pub(crate) async fn resource(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let text = state
        .peers
        .stats
        .exposition(ExpositionKind::Resource)
        .await?;
    Ok(respond(text))
}

/// Counts and durations of probes.
pub(crate) async fn probes(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let counts = state.peers.probe_counts().await?;
    let series = counts.probes.into_iter().filter_map(convert::probe_series);
    let series: Vec<_> = series.collect();
    let text = probes::render(&counts.bucket_bounds, &series);
    Ok(respond(text.into()))
}

fn respond(text: Bytes) -> Response {
    let content_type = ExpositionFormat::Prometheus.media_type();
    ([(CONTENT_TYPE, content_type)], text).into_response()
}
