//! `/containerLogs/{namespace}/{pod}/{container}`. As upstream, and so for kubectl, both streams are one
//! text unless `stream` names one. Unlike upstream, rotated files are read, too.

use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_cri::log::{LogReadError, LogReader};
use polylet_model::names;

use super::{HandlerState, PeerError};
use crate::core::log_query::{self, QueryError};
use crate::core::pods::container_statuses;

/// The log file to read.
struct LogTarget {
    pod_uid: String,
    /// Without the prefix with the runtime's name.
    container_id: String,
    path: PathBuf,
}

/// The log of a container.
pub(crate) async fn get(
    State(state): State<HandlerState>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query = match log_query::parse(&query, Timestamp::now()) {
        Ok(query) => query,
        Err(QueryError::Malformed(message)) => {
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
        Err(QueryError::Invalid(message)) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, message).into_response();
        }
    };
    let target = match find(&state, &namespace, &pod, &container, query.previous).await {
        Ok(target) => target,
        Err(response) => return response,
    };
    let ended = state.peers.until_ended(target.pod_uid, target.container_id);
    // Compressed files are read to their end to find the last lines.
    let open = move || LogReader::open(&target.path, query.options, ended);
    let opened = match tokio::task::spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
    };
    match opened {
        Ok(reader) => (
            [(CONTENT_TYPE, "text/plain")],
            Body::from_stream(chunks(reader)),
        )
            .into_response(),
        Err(error) => {
            let code = match &error {
                LogReadError::Open { source, .. }
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    StatusCode::NOT_FOUND
                }
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, polylet_kit::report(&error)).into_response()
        }
    }
}

/// The log as a response body. An error ends it early, as the status line has been sent by then.
fn chunks(reader: LogReader) -> impl futures::Stream<Item = Result<Bytes, LogReadError>> {
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk.map(|chunk| Bytes::from(chunk.bytes)), reader))
    })
}

/// Finds the log file of a container, or the response that says why there is none.
async fn find(
    state: &HandlerState,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<LogTarget, Response> {
    let pods = state
        .peers
        .pods_named(namespace, pod)
        .await
        .map_err(|status| PeerError(status).into_response())?;
    let found = pods
        .iter()
        .find_map(|found| Some((found, found.r#ref.as_ref()?)));
    let Some((found, reference)) = found else {
        let message = format!("pod {namespace}/{pod} not found");
        return Err((StatusCode::NOT_FOUND, message).into_response());
    };
    let status: PodStatus = serde_json::from_slice(&found.status).unwrap_or_default();
    let Some(container_status) =
        container_statuses(&status).find(|status| status.name == container)
    else {
        let message = format!("container {container} not found in pod {namespace}/{pod}");
        return Err((StatusCode::NOT_FOUND, message).into_response());
    };
    let Some((attempt, container_id)) = attempt(container_status, previous) else {
        let what = if previous { "previous terminated " } else { "" };
        let waiting = container_status
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let message = match reason {
            Some(reason) if !previous => {
                format!("container {container:?} in pod {pod:?} is waiting to start: {reason}")
            }
            _ => format!("{what}container {container:?} in pod {pod:?} not found"),
        };
        return Err((StatusCode::BAD_REQUEST, message).into_response());
    };
    let directory = names::pod_log_dir(
        &state.pod_logs,
        namespace,
        pod,
        &reference.uid.clone().into(),
    );
    Ok(LogTarget {
        pod_uid: reference.uid.clone(),
        container_id,
        path: directory.join(container).join(format!("{attempt}.log")),
    })
}

/// The restart count and id of the container to read. As upstream: the running container, or the last
/// one that ended; with `previous` the one before.
fn attempt(status: &ContainerStatus, previous: bool) -> Option<(i32, String)> {
    let state = status.state.as_ref();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let without_prefix = |id: Option<&String>| {
        let id = id?;
        Some(id.rsplit("//").next().unwrap_or(id).to_owned())
    };
    if previous {
        let id = without_prefix(last?.container_id.as_ref())?;
        let waiting = state.is_some_and(|state| state.waiting.is_some());
        let count = if waiting {
            status.restart_count
        } else {
            status.restart_count - 1
        };
        return Some((count.max(0), id));
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return Some((
            status.restart_count,
            without_prefix(status.container_id.as_ref())?,
        ));
    }
    let terminated = ended.or(last)?;
    Some((
        status.restart_count,
        without_prefix(terminated.container_id.as_ref())?,
    ))
}
