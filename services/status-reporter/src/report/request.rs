//! Requests to the API server, each with a deadline.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_api::{ApiConnection, ApiErrorKind, ConnectError, kube};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::core::normal_form;
use crate::core::report::desired::ApiAction;
use crate::core::report::request::{PatchResult, StatusRequest};

/// How long the API server may take to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiWriteError {
    #[error("connecting to the API server")]
    Connect(#[source] ConnectError),
    #[error("building the request for {path}")]
    Build {
        path: String,
        #[source]
        source: http::Error,
    },
    #[error("{method} {path}")]
    Response {
        method: &'static str,
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{method} {path}: no response within {} s", TIMEOUT.as_secs())]
    Timeout { method: &'static str, path: String },
}

impl ApiWriteError {
    pub(crate) fn kind(&self) -> ApiErrorKind {
        match self {
            ApiWriteError::Connect(_) | ApiWriteError::Timeout { .. } => ApiErrorKind::Unreachable,
            ApiWriteError::Build { .. } => ApiErrorKind::Invalid,
            ApiWriteError::Response { source, .. } => ApiErrorKind::from_error(source),
        }
    }
}

/// The relevant part of the response to a patch.
#[derive(Deserialize)]
struct PatchedPod {
    status: PodStatus,
}

/// Sends a status patch or a deletion.
pub(crate) async fn send(
    connection: &ApiConnection,
    request: &StatusRequest,
) -> Result<PatchResult, ApiWriteError> {
    let started = Instant::now();
    let (namespace, name) = (&request.namespace, &request.name);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let result = match &request.action {
        ApiAction::Patch(body) => {
            let response = patch(connection, format!("{path}/status"), body).await?;
            match serde_json::from_str(&response) {
                Ok(PatchedPod { status }) => PatchResult::Patched(normal_form::normalized(status)),
                // Not a pod: the watch will report the status.
                Err(_) => PatchResult::Rejected,
            }
        }
        ApiAction::Delete => match delete(connection, path, &request.uid).await {
            // Deleted by others.
            Err(error) if error.kind() == ApiErrorKind::NotFound => PatchResult::Deleted,
            deleted => deleted.map(|()| PatchResult::Deleted)?,
        },
    };
    let outcome = if crate::report::is_ready_result(&result) {
        "ready"
    } else {
        "patched"
    };
    tracing::Span::current().record("polylet.result", outcome);
    tracing::debug!(
        pod = %format_args!("{namespace}/{name}"),
        pod_uid = request.uid.as_str(),
        duration_ms = started.elapsed().as_millis() as u64,
        "pod status sent to API server"
    );
    Ok(result)
}

/// Sends a strategic merge patch; returns the object as JSON.
pub(crate) async fn patch(
    connection: &ApiConnection,
    path: String,
    body: &Value,
) -> Result<String, ApiWriteError> {
    let content_type = "application/strategic-merge-patch+json";
    send_request(connection, "PATCH", path, content_type, body).await
}

/// Creates an object; returns it as JSON.
pub(crate) async fn create(
    connection: &ApiConnection,
    path: String,
    body: &Value,
) -> Result<String, ApiWriteError> {
    send_request(connection, "POST", path, "application/json", body).await
}

/// Deletes the pod with this uid, without a grace period.
pub(crate) async fn delete(
    connection: &ApiConnection,
    path: String,
    uid: &str,
) -> Result<(), ApiWriteError> {
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "gracePeriodSeconds": 0, "preconditions": { "uid": uid },
    });
    let response = send_request(connection, "DELETE", path, "application/json", &body);
    response.await.map(drop)
}

async fn send_request(
    connection: &ApiConnection,
    method: &'static str,
    path: String,
    content_type: &str,
    body: &Value,
) -> Result<String, ApiWriteError> {
    let request = http::Request::builder()
        .method(method)
        .uri(&path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(source) => return Err(ApiWriteError::Build { path, source }),
    };
    let client = connection.client().await.map_err(ApiWriteError::Connect)?;
    match timeout(TIMEOUT, client.request_text(request)).await {
        Err(_) => Err(ApiWriteError::Timeout { method, path }),
        Ok(Err(source)) => {
            if ApiErrorKind::from_error(&source) == ApiErrorKind::Unauthorized {
                connection.invalidate();
            }
            let source = Box::new(source);
            Err(ApiWriteError::Response {
                method,
                path,
                source,
            })
        }
        Ok(Ok(response)) => Ok(response),
    }
}
