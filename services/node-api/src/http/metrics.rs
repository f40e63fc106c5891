//! `/metrics` and its paths.

use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use polylet_wire::stats::v1::ExpositionKind;
use rustix::process::{Resource, getrlimit};

use super::{HandlerState, PeerError};
use crate::convert;
use crate::core::metrics::{self, ScrapedNode};
use crate::core::probes;

/// What the services have counted, pods and containers, and usage of volumes.
pub(crate) async fn node(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let now = SystemTime::now();
    let since = now.checked_sub(state.max_volume_age).unwrap_or(now);
    let (counted, states, summary) = tokio::join!(
        state.peers.metrics(),
        state.peers.runtime_states(),
        state.peers.summary(false, Some(since))
    );
    // Everything else is served even if a service is unavailable.
    let counts = convert::node_counts(&states.unwrap_or_default());
    let summary = summary
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok());
    let started_at = state.started_at.duration_since(SystemTime::UNIX_EPOCH);
    let facts = ScrapedNode {
        name: &state.node,
        version: env!("CARGO_PKG_VERSION"),
        started_at: started_at.as_ref().ok().map(Duration::as_secs_f64),
        max_files: getrlimit(Resource::Nofile).current.map(|max| max as f64),
    };
    let counted = counted.into_iter().filter_map(convert::counted_family);
    let text = metrics::node(
        &facts,
        &counts,
        counted.collect(),
        &summary.unwrap_or_default(),
    );
    Ok(respond(text.into()))
}

/// Usage of all cgroups, and of the machine.
pub(crate) async fn cadvisor(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let text = state.peers.exposition(ExpositionKind::Cadvisor).await?;
    Ok(respond(text))
}

/// Usage of the node, pods and containers.
pub(crate) async fn resource(State(state): State<HandlerState>) -> Result<Response, PeerError> {
    let text = state.peers.exposition(ExpositionKind::Resource).await?;
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
    ([(CONTENT_TYPE, polylet_metrics::CONTENT_TYPE)], text).into_response()
}
