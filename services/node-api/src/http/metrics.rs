//! `/metrics`, `/metrics/resource` and `/metrics/probes`.

use std::time::SystemTime;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::{HandlerState, PeerError};
use crate::convert;
use crate::core::metrics::{self, MetricFamilies};
use crate::core::probes;

/// The media type of clients that do not accept OpenMetrics; its parsers read the same text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text";

/// Counts of pods and containers, and usage of volumes.
pub(crate) async fn node(
    State(state): State<HandlerState>,
    headers: HeaderMap,
) -> Result<Response, PeerError> {
    let now = SystemTime::now();
    let since = now.checked_sub(state.max_volume_age).unwrap_or(now);
    let (pods, states, summary) = tokio::join!(
        state.peers.pods(),
        state.peers.runtime_states(),
        state.peers.summary(false, Some(since))
    );
    let counts = convert::node_counts(pods?.len(), &states?);
    // The counts are served even if eviction is unavailable.
    let summary = summary
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok());
    let summary = summary.unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    respond(
        &headers,
        metrics::node(&state.node, version, &counts, &summary),
    )
}

/// Usage of the node, pods and containers.
pub(crate) async fn resource(
    State(state): State<HandlerState>,
    headers: HeaderMap,
) -> Result<Response, PeerError> {
    let summary = state.peers.summary(true, None).await?;
    let summary = serde_json::from_slice(&summary)
        .map_err(|error| tonic::Status::internal(format!("invalid stats summary: {error}")))?;
    respond(&headers, metrics::resource(&summary))
}

/// Counts and durations of probes.
pub(crate) async fn probes(
    State(state): State<HandlerState>,
    headers: HeaderMap,
) -> Result<Response, PeerError> {
    let counts = state.peers.probe_counts().await?;
    let series = counts.probes.into_iter().filter_map(convert::probe_series);
    let series: Vec<_> = series.collect();
    respond(&headers, probes::families(&counts.bucket_bounds, &series))
}

fn respond(headers: &HeaderMap, families: MetricFamilies) -> Result<Response, PeerError> {
    let text = families
        .encode()
        .map_err(|_| tonic::Status::internal("failed to encode metrics"))?;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let content_type = if accept.is_some_and(|accept| accept.contains(OPENMETRICS)) {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        TEXT
    };
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}
