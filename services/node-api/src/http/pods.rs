//! `/pods` and `/runningpods/`.

use axum::Json;
use axum::extract::State;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};
use serde_json::Value;

use super::PeerError;
use crate::core::pods;

/// All pods of this node with their statuses.
pub(crate) async fn all(State(state): State<super::State>) -> Result<Json<Value>, PeerError> {
    let found = state.peers.pods().await?;
    let items = found
        .iter()
        .filter_map(|pod| pods::with_status(&pod.manifest, &pod.status))
        .collect();
    Ok(Json(pods::list(items)))
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
