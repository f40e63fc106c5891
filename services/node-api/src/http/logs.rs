//! `/containerLogs/{namespace}/{pod}/{container}`. As upstream, and so for kubectl, both streams are one
//! text unless `stream` names one. Unlike upstream, rotated files are read, too.

use std::io::ErrorKind;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use polylet_cri::log::{LogReadError, LogReader};
use polylet_model::names;

use super::log_stream::{self, LogStreamError};
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
        Err(error) => return rejection(error).into_response(),
    };
    let target = match find(&state, &namespace, &pod, &container, query.previous).await {
        Ok(target) => target,
        Err(response) => return response,
    };
    let follows = query.options.follow;
    let ended = state.peers.until_ended(target.pod_uid, target.container_id);
    let watcher = state.log_watcher.clone();
    // Compressed files are read to their end to find the last lines.
    let open = move || LogReader::open(&target.path, query.options, ended, &watcher);
    match state.log_threads.open(open).await {
        Ok(reader) => {
            let body = Body::from_stream(log_stream::chunks(reader, state.log_threads));
            let mut response = ([(CONTENT_TYPE, "text/plain")], body).into_response();
            if follows {
                response.extensions_mut().insert(LastingResponse);
            }
            response
        }
        Err(error) => failure(&error).into_response(),
    }
}

fn failure(error: &LogStreamError) -> (StatusCode, String) {
    match error {
        // As upstream, also for a file that is missing: the container exists.
        LogStreamError::Unreadable(error) => (StatusCode::BAD_REQUEST, unreadable(error)),
        LogStreamError::Busy => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        LogStreamError::Thread(_) | LogStreamError::Closed(_) => {
            let message = polylet_kit::report(error);
            (StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

fn rejection(error: QueryError) -> (StatusCode, String) {
    match error {
        QueryError::Malformed(message) => {
            tracing::debug!(message, "unreadable query for a log");
            let message = "{\"message\": \"Unable to decode query.\"}".to_owned();
            (StatusCode::BAD_REQUEST, message)
        }
        QueryError::Invalid(message) => (StatusCode::UNPROCESSABLE_ENTITY, message),
        QueryError::Disabled(message) => (StatusCode::BAD_REQUEST, message),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_whose_gate_is_off_is_named_in_the_answer() {
        let one = [("stream".to_owned(), "Stdout".to_owned())];
        let query = log_query::parse(&one, false, Timestamp::UNIX_EPOCH);
        let (code, message) = rejection(query.unwrap_err());
        assert_eq!(code, StatusCode::BAD_REQUEST);
        let expected = "unable to return the given log stream: \"Stdout\". Please enable \
                        PodLogsQuerySplitStreams feature gate in kubelet";
        assert_eq!(message, expected);
        let odd = [("tailLines".to_owned(), "x".to_owned())];
        let query = log_query::parse(&odd, false, Timestamp::UNIX_EPOCH);
        let (code, message) = rejection(query.unwrap_err());
        assert_eq!(code, StatusCode::BAD_REQUEST);
        assert_eq!(message, "{\"message\": \"Unable to decode query.\"}");
    }

    #[test]
    fn a_log_without_a_thread_is_a_temporary_failure() {
        let (code, message) = failure(&LogStreamError::Busy);
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        let expected = "all 8 threads that read container logs are busy";
        assert!(message.starts_with(expected), "{message}");
        let (path, source) = ("/0.log".into(), ErrorKind::NotFound.into());
        let (code, _) = failure(&LogReadError::Open { path, source }.into());
        assert_eq!(code, StatusCode::BAD_REQUEST);
    }
}
