//! `/pods` and `/runningpods/`.

use std::convert::Infallible;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::stream::{self, StreamExt};
use serde_json::Value;

use super::{HandlerState, PeerError};
use crate::convert;
use crate::core::pods;

/// All pods of this node with their statuses, written one after the other: together they may exceed a
/// hundred megabytes.
pub(crate) async fn all(State(state): State<HandlerState>) -> Result<impl IntoResponse, PeerError> {
    let found = state.peers.pods().await?;
    let (begin, end) = pods::LIST;
    let mut separator = "";
    let items = found
        .into_iter()
        .filter_map(|pod| pods::with_status(&pod.manifest, &pod.status))
        .map(move |pod| format!("{}{pod}", std::mem::replace(&mut separator, ",")));
    let text = stream::iter([begin.to_owned()])
        .chain(stream::iter(items))
        .chain(stream::iter([end.to_owned()]));
    let body = Body::from_stream(text.map(Ok::<_, Infallible>));
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

/// The pods that run in the container runtime.
pub(crate) async fn running(State(state): State<HandlerState>) -> Result<Json<Value>, PeerError> {
    let states = state.peers.runtime_states().await?;
    let running = states.iter().filter_map(convert::running_pod);
    let items = running.map(|pod| pods::running(&pod));
    Ok(Json(pods::list(items.collect())))
}
