//! Requests about the Node object, each with its deadline.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use polylet_api::kube::Api;
use polylet_api::kube::api::{Patch, PatchParams, PostParams};
use polylet_api::{Connection, Refusal, kube};
use serde_json::Value;
use tokio::time::timeout;

use crate::core::node::object::Registration;

/// As upstream's heartbeats: an answer that takes longer is none.
const LIMIT: Duration = Duration::from_secs(10);

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The server said no, or was not reached.
    #[error("{what}")]
    Refused {
        what: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{what}: no answer within {} s", LIMIT.as_secs())]
    Silent { what: &'static str },
}

impl CallError {
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            CallError::Refused { source, .. } => Refusal::of(source),
            CallError::Silent { .. } => Refusal::Unreachable,
        }
    }
}

/// A request with its deadline.
pub(crate) async fn within<T>(
    what: &'static str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match timeout(LIMIT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(CallError::Refused {
            what,
            source: Box::new(source),
        }),
        Err(_) => Err(CallError::Silent { what }),
    }
}

/// Makes the object (`None`: does not), or puts right what is there. Tells whether it was made.
pub(super) async fn register(
    connection: Connection,
    registration: Registration,
    object: Option<Box<Node>>,
) -> Result<(Box<Node>, bool), CallError> {
    let nodes: Api<Node> = Api::all(connection.ready().await);
    if let Some(object) = object {
        let parameters = PostParams::default();
        let made = nodes.create(&parameters, &object);
        match within("making the Node", made).await {
            Ok(node) => return Ok((Box::new(node), true)),
            // Who may not make it may find it made by others.
            Err(error)
                if matches!(error.refusal(), Refusal::AlreadyExists | Refusal::Forbidden) =>
            {
                tracing::debug!("{}", polylet_kit::report(&error));
            }
            Err(error) => return Err(error),
        }
    }
    let held = within("reading the Node", nodes.get(&registration.name)).await?;
    let Some(corrections) = registration.corrections(&held) else {
        return Ok((Box::new(held), false));
    };
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(corrections));
    let patched = nodes.patch(&registration.name, &parameters, &patch);
    let node = within("putting the Node right", patched).await?;
    Ok((Box::new(node), false))
}

/// Writes the status.
pub(super) async fn write(
    connection: Connection,
    name: String,
    patch: Value,
) -> Result<Box<Node>, CallError> {
    let nodes: Api<Node> = Api::all(connection.ready().await);
    let (parameters, patch) = (PatchParams::default(), Patch::Strategic(patch));
    let written = nodes.patch_status(&name, &parameters, &patch);
    let node = within("writing the Node's status", written).await?;
    Ok(Box::new(node))
}
