//! `/pods` and `/runningpods/`.

use std::convert::Infallible;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::stream::{self, StreamExt};
use polylet_wire::pleg::v1::{ContainerPhase, PodState};
use serde_json::Value;

use super::PeerError;
use crate::core::pods;

/// All pods of this node with their statuses. One after the other: together they may be more than a
/// hundred megabytes.
pub(crate) async fn all(State(state): State<super::State>) -> Result<impl IntoResponse, PeerError> {
    let found = state.peers.pods().await?;
    let (begin, end) = pods::LIST;
    let mut between = "";
    let items = found
        .into_iter()
        .filter_map(|pod| pods::with_status(&pod.manifest, &pod.status))
        .map(move |pod| format!("{}{pod}", std::mem::replace(&mut between, ",")));
    let text = stream::iter([begin.to_owned()])
        .chain(stream::iter(items))
        .chain(stream::iter([end.to_owned()]));
    let body = Body::from_stream(text.map(Ok::<_, Infallible>));
    Ok(([(CONTENT_TYPE, "application/json")], body))
}

/// What the runtime says is running.
pub(crate) async fn running(State(state): State<super::State>) -> Result<Json<Value>, PeerError> {
    let states = state.peers.states().await?;
    let items = states
        .iter()
        .filter_map(running_pod)
        .map(|pod| pods::running(&pod));
    Ok(Json(pods::list(items.collect())))
}

fn running_pod(state: &PodState) -> Option<pods::Running> {
    let reference = state.r#ref.as_ref()?;
    let containers: Vec<(String, String)> = state
        .containers
        .iter()
        .filter(|container| container.phase() == ContainerPhase::Running)
        .map(|container| (container.name.clone(), container.image.clone()))
        .collect();
    let runs = !containers.is_empty() || state.sandboxes.iter().any(|sandbox| sandbox.ready);
    runs.then(|| pods::Running {
        uid: reference.uid.clone(),
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        containers,
    })
}
