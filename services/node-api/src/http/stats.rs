//! `/stats/summary`.

use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Deserialize;

use super::{HandlerState, PeerError};

/// Query parameters of the summary.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SummaryQuery {
    #[serde(default)]
    only_cpu_and_memory: bool,
}

/// Usage of the node and its pods.
pub(crate) async fn summary(
    State(state): State<HandlerState>,
    Query(query): Query<SummaryQuery>,
) -> Result<impl IntoResponse, PeerError> {
    let summary = state.peers.summary(query.only_cpu_and_memory, None).await?;
    Ok(([(CONTENT_TYPE, "application/json")], summary))
}
