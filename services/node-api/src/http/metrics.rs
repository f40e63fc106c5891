//! `/metrics`, `/metrics/resource` and `/metrics/probes`.

use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::prober::v1::ProbeKind;

use super::PeerError;
use crate::core::metrics::{self, Counts};
use crate::core::probes::{self, Histogram, Probe};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How old what is told of volumes may be, as upstream counts it anew.
const VOLUMES_AGE: Duration = Duration::from_secs(60);

/// Counts of pods and containers, and what claims' volumes hold.
pub(crate) async fn node(
    State(state): State<super::State>,
) -> Result<impl IntoResponse, PeerError> {
    let since = SystemTime::now() - VOLUMES_AGE;
    let (pods, states, summary) = tokio::join!(
        state.peers.pods(),
        state.peers.states(),
        state.peers.summary(false, Some(since))
    );
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
    let mut text = metrics::node(&state.node, env!("CARGO_PKG_VERSION"), &counts);
    // Who knows of volumes may be away: the counts are told all the same.
    let summary = summary
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok());
    text.push_str(&metrics::volumes(&summary.unwrap_or_default()));
    Ok(([(CONTENT_TYPE, TEXT)], text))
}

/// Usage of node, pods and containers.
pub(crate) async fn resource(
    State(state): State<super::State>,
) -> Result<impl IntoResponse, PeerError> {
    let summary = state.peers.summary(true, None).await?;
    let summary = serde_json::from_slice(&summary)
        .map_err(|error| tonic::Status::internal(format!("the summary cannot be read: {error}")))?;
    Ok(([(CONTENT_TYPE, TEXT)], metrics::resource(&summary)))
}

/// Counts and durations of probes.
pub(crate) async fn probes(
    State(state): State<super::State>,
) -> Result<impl IntoResponse, PeerError> {
    let counts = state.peers.probe_counts().await?;
    let probes: Vec<Probe> = counts
        .probes
        .into_iter()
        .filter_map(|probe| {
            let kind = match probe.kind() {
                ProbeKind::Startup => "Startup",
                ProbeKind::Liveness => "Liveness",
                ProbeKind::Readiness => "Readiness",
                ProbeKind::Unspecified => return None,
            };
            let pod = probe.pod.unwrap_or_default();
            Some(Probe {
                kind,
                container: probe.container,
                pod: pod.name,
                namespace: pod.namespace,
                pod_uid: pod.uid,
                successful: probe.successful,
                failed: probe.failed,
                unknown: probe.unknown,
                durations: Histogram {
                    count: probe.successful + probe.unknown,
                    classes: probe.classes,
                    seconds: probe.seconds,
                },
            })
        })
        .collect();
    let text = probes::text(&counts.bounds, &probes);
    Ok(([(CONTENT_TYPE, TEXT)], text))
}
