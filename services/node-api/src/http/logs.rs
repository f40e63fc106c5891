//! `/containerLogs/{namespace}/{pod}/{container}`. As upstream, and so for kubectl, both streams are one
//! text unless `stream` names one. Unlike upstream, rotated files are read, too.

use std::io::ErrorKind;
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use polylet_cri::log::{LogReadError, LogReader};
use polylet_model::names;

use super::{HandlerState, PeerError};
use crate::core::log_query::{self, QueryError};
use crate::core::{log_target, pods};
use crate::server::LastingResponse;

/// The log file to read.
struct LogTarget {
    pod_uid: String,
    container_id: String,
    path: PathBuf,
}

/// The log of a container.
pub(crate) async fn get(
    State(state): State<HandlerState>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query = match log_query::parse(&query, state.split_streams, Timestamp::now()) {
        Ok(query) => query,
        Err(QueryError::Malformed(message)) => {
            tracing::debug!(message, "unreadable query for a log");
            let message = "{\"message\": \"Unable to decode query.\"}";
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
    let follows = query.options.follow;
    let ended = state.peers.until_ended(target.pod_uid, target.container_id);
    // Compressed files are read to their end to find the last lines.
    let watcher = state.log_watcher.clone();
    let open = move || LogReader::open(&target.path, query.options, ended, &watcher);
    let opened = match tokio::task::spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(error) => {
            return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
        }
    };
    match opened {
        Ok(reader) => {
            let body = Body::from_stream(chunks(reader));
            let mut response = ([(CONTENT_TYPE, "text/plain")], body).into_response();
            if follows {
                response.extensions_mut().insert(LastingResponse);
            }
            response
        }
        // As upstream, also for a file that is missing: the container exists.
        Err(error) => (StatusCode::BAD_REQUEST, unreadable(&error)).into_response(),
    }
}

fn unreadable(error: &LogReadError) -> String {
    match error {
        LogReadError::Open { path, source } if source.kind() == ErrorKind::NotFound => {
            let path = path.display().to_string();
            format!(
                "failed to try resolving symlinks in path {path:?}: lstat {path}: no such file or directory"
            )
        }
        _ => polylet_kit::report(error),
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
    let found = state.peers.pods_named(namespace, pod).await;
    let found = found.map_err(|status| PeerError(status).into_response())?;
    let found = found.iter();
    let found = found
        .filter_map(|found| Some((found, found.r#ref.as_ref()?)))
        .next();
    let Some((found, reference)) = found else {
        let message = format!("pod {pod:?} does not exist");
        return Err((StatusCode::NOT_FOUND, message).into_response());
    };
    let status: PodStatus = serde_json::from_slice(&found.status).unwrap_or_default();
    if !pods::has_container(&found.manifest, &status, container) {
        let message = format!("container {container:?} not found in pod {pod:?}");
        return Err((StatusCode::NOT_FOUND, message).into_response());
    }
    let instance = log_target::select(&status, pod, container, previous)
        .map_err(|message| (StatusCode::BAD_REQUEST, message).into_response())?;
    let directory = names::pod_log_dir(
        &state.pod_logs,
        namespace,
        pod,
        &reference.uid.clone().into(),
    );
    Ok(LogTarget {
        pod_uid: reference.uid.clone(),
        container_id: instance.id,
        path: directory
            .join(container)
            .join(format!("{}.log", instance.restart_count)),
    })
}
