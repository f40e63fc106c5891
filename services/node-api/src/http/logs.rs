//! `/containerLogs/{namespace}/{pod}/{container}`. As upstream, and so for kubectl, both streams are one
//! text unless `stream` names one. Unlike upstream, rotated files are read, too.

use std::io::ErrorKind;
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use polylet_cri::log::{LogReadError, LogReader};
use polylet_model::names;

use super::{HandlerState, PeerError};
use crate::core::log_query::{self, QueryError};
use crate::core::{log_target, pods};
use crate::server::LastingResponse;

/// Lines that are there are sent together up to about this size.
const CHUNK_BYTES: usize = 32 << 10;

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

/// The log as a response body. An error ends it early, as the status line has been sent by then.
fn chunks(reader: LogReader) -> impl futures::Stream<Item = Result<Bytes, LogReadError>> {
    stream::unfold((reader, None), |(mut reader, failed)| async move {
        if let Some(error) = failed {
            return Some((Err(error), (reader, None)));
        }
        let mut bytes = reader.next().await?.map(|chunk| chunk.bytes);
        let mut failed = None;
        while let Ok(bytes) = &mut bytes
            && bytes.len() < CHUNK_BYTES
            && let Some(Some(next)) = reader.next().now_or_never()
        {
            match next {
                Ok(chunk) => bytes.extend(chunk.bytes),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        // Others have their turns, however fast the client reads.
        tokio::task::yield_now().await;
        Some((bytes.map(Bytes::from), (reader, failed)))
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

#[cfg(test)]
mod tests {
    use futures::{StreamExt, TryStreamExt};
    use polylet_cri::log::{LogOptions, LogWatcher};

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

    #[tokio::test]
    async fn lines_are_sent_together() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let line = |n: usize| format!("2026-01-01T00:00:00.000000000Z stdout F line {n}\n");
        std::fs::write(&path, (0..10_000).map(line).collect::<String>()).unwrap();
        let (options, watcher) = (LogOptions::default(), LogWatcher::default());
        let reader = LogReader::open(&path, options, std::future::pending(), &watcher).unwrap();
        let sent: Vec<Bytes> = chunks(reader).try_collect().await.unwrap();
        let expected: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        assert_eq!(sent.concat(), expected.as_bytes());
        assert_eq!(sent.len(), expected.len().div_ceil(CHUNK_BYTES));
    }

    #[tokio::test]
    async fn a_follower_gets_each_line_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let line = "2026-01-01T00:00:00.000000000Z stdout F line\n";
        std::fs::write(&path, line).unwrap();
        let options = LogOptions {
            follow: true,
            ..LogOptions::default()
        };
        let watcher = LogWatcher::default();
        let reader = LogReader::open(&path, options, std::future::pending(), &watcher).unwrap();
        let mut sent = Box::pin(chunks(reader));
        for number in 2..5 {
            assert_eq!(sent.next().await.unwrap().unwrap(), "line\n");
            std::fs::write(&path, line.repeat(number)).unwrap();
        }
    }
}
