//! `/checkpoint/{namespace}/{pod}/{container}`: archives of running containers.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use polylet_kit::{Channel, Ctx};
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::CheckpointContainerRequest;
use polylet_wire::pleg::v1::checkpoint_service_client::CheckpointServiceClient;
use serde_json::json;
use tonic::{Code, Request, Status};

use super::HandlerState;
use super::streams::{find, refused};
use crate::core::{checkpoint, pods};

/// Time for the call between the two services, beyond that of the call to the runtime.
const CALL_MARGIN: Duration = Duration::from_secs(10);
/// The longest timeout of a request that is observed.
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Calls pleg, which has the runtime write checkpoints. Clones share the connection.
#[derive(Clone)]
pub(crate) struct CheckpointClient {
    pleg: Channel,
    runtime_timeout: Duration,
}

impl CheckpointClient {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self {
            pleg: ctx.peer("pleg").unwatched_channel(),
            runtime_timeout: ctx.config().kubelet.runtime_request_timeout,
        }
    }

    /// Checkpoints a running container and returns the path of the archive. Not repeated: it may have been written.
    async fn checkpoint(
        &self,
        pod: PodRef,
        container: String,
        timeout_seconds: i64,
    ) -> Result<String, Status> {
        let mut request = Request::new(CheckpointContainerRequest {
            pod: Some(pod),
            container,
            timeout_seconds,
        });
        let requested = Duration::from_secs(u64::try_from(timeout_seconds).unwrap_or_default());
        let timeout = requested.max(self.runtime_timeout).min(MAX_TIMEOUT);
        request.set_timeout(timeout.saturating_add(CALL_MARGIN));
        let mut service = CheckpointServiceClient::new(self.pleg.clone());
        let response = service.checkpoint_container(request).await?;
        Ok(response.into_inner().location)
    }
}

/// Has the runtime write an archive of a running container.
pub(crate) async fn post(
    State(state): State<HandlerState>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Response> {
    let not_found = |message: String| (StatusCode::NOT_FOUND, message).into_response();
    let pod = find(&state, &namespace, &name, None).await?;
    if !pods::declares_container(&pod.manifest, &container) {
        return Err(not_found(format!("container {container} does not exist")));
    }
    let timeout = checkpoint::timeout_seconds(&query);
    let timeout = timeout.map_err(|message| not_found(message.to_owned()))?;
    let call = state
        .checkpoints
        .checkpoint(pod.reference, container.clone(), timeout);
    let location = call.await.map_err(|status| {
        if status.code() == Code::ResourceExhausted {
            return refused(status);
        }
        let message = checkpoint::failed(&namespace, &name, &container, status.message());
        (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
    })?;
    let body = json!({ "items": [location] }).to_string();
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}
