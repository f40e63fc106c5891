//! `/metrics` and `/metrics/resource`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use polylet_wire::pleg::v1::ContainerPhase;

use super::PeerError;
use crate::core::metrics::{self, Counts};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counts of pods and containers.
pub(crate) async fn node(
    State(state): State<super::State>,
) -> Result<impl IntoResponse, PeerError> {
    let (pods, states) = tokio::join!(state.peers.pods(), state.peers.states());
    let (pods, states) = (pods?, states?);
    let mut counts = Counts {
        desired_pods: pods.len() as u64,
        ..Counts::default()
    };
    for pod in &states {
        counts.running_pods += u64::from(pod.sandboxes.iter().any(|sandbox| sandbox.ready));
        for container in &pod.containers {
            let phase = match container.phase() {
                ContainerPhase::Created => "created",
                ContainerPhase::Running => "running",
                ContainerPhase::Exited => "exited",
                ContainerPhase::Unknown | ContainerPhase::Unspecified => "unknown",
            };
            *counts.containers.entry(phase).or_default() += 1;
        }
    }
    let text = metrics::node(&state.node, env!("CARGO_PKG_VERSION"), &counts);
    Ok(([(CONTENT_TYPE, TEXT)], text))
}

/// Usage of node, pods and containers.
pub(crate) async fn resource(
    State(state): State<super::State>,
) -> Result<impl IntoResponse, PeerError> {
    let summary = state.peers.summary(true).await?;
    let summary = serde_json::from_slice(&summary)
        .map_err(|error| tonic::Status::internal(format!("the summary cannot be read: {error}")))?;
    Ok(([(CONTENT_TYPE, TEXT)], metrics::resource(&summary)))
}
