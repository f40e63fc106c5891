//! Requests about the Node, each with a deadline.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use polylet_api::kube::api::{Patch, PatchParams, PostParams};
use polylet_api::kube::{Api, Client};
use polylet_api::retry::RequestError;
use polylet_api::{ApiErrorKind, kube};
use serde_json::Value;
use tokio::time::timeout;

use crate::core::node::object::Registration;

/// The timeout of upstream's heartbeat client.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{operation}")]
    Response {
        operation: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{operation}: no response within {} s", TIMEOUT.as_secs())]
    Timeout { operation: &'static str },
}

impl CallError {
    pub(crate) fn kind(&self) -> ApiErrorKind {
        match self {
            CallError::Response { source, .. } => ApiErrorKind::from_error(source),
            CallError::Timeout { .. } => ApiErrorKind::Unreachable,
        }
    }
}

impl RequestError for CallError {
    fn kind(&self) -> Option<ApiErrorKind> {
        Some(self.kind())
    }
}

/// Waits for the response to a request.
pub(crate) async fn with_deadline<T>(
    operation: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match timeout(TIMEOUT, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(source)) => Err(CallError::Response {
            operation,
            source: Box::new(source),
        }),
        Err(_) => Err(CallError::Timeout { operation }),
    }
}

/// Creates the object if one is given, or corrects the existing one. Returns it and whether it was
/// created.
pub(super) async fn register(
    client: Client,
    registration: &Registration,
    object: Option<Box<Node>>,
) -> Result<(Box<Node>, bool), CallError> {
    let nodes: Api<Node> = Api::all(client);
    if let Some(object) = object {
        let params = PostParams::default();
        let created = nodes.create(&params, &object);
        match with_deadline("creating the Node", created).await {
            Ok(node) => return Ok((Box::new(node), true)),
            // A node that is not authorized to create it may find it created by others.
            Err(error)
                if matches!(
                    error.kind(),
                    ApiErrorKind::AlreadyExists | ApiErrorKind::Forbidden
                ) =>
            {
                let error = polylet_kit::report(&error);
                tracing::debug!(error, "Node not created; looking for an existing one");
            }
            Err(error) => return Err(error),
        }
    }
    let current = with_deadline("reading the Node", nodes.get(&registration.name)).await?;
    let Some(corrections) = registration.corrections(&current) else {
        return Ok((Box::new(current), false));
    };
    let (params, patch) = (PatchParams::default(), Patch::Strategic(corrections));
    let patched = nodes.patch(&registration.name, &params, &patch);
    let node = with_deadline("updating labels and annotations of the Node", patched).await?;
    Ok((Box::new(node), false))
}

/// Patches the status.
pub(super) async fn patch_status(
    client: Client,
    name: &str,
    patch: Value,
) -> Result<Box<Node>, CallError> {
    let nodes: Api<Node> = Api::all(client);
    let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
    let patched = nodes.patch_status(name, &params, &patch);
    let node = with_deadline("updating the status of the Node", patched).await?;
    Ok(Box::new(node))
}
