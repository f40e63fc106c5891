//! `/containerLogs/{namespace}/{pod}/{container}`: both streams as one text, as upstream and so
//! kubectl have it, unless `stream` names one; across rotated files, where upstream reads the current
//! one only.

use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_cri::log::{LogError, Reader};
use polylet_model::names;

use super::PeerError;
use crate::core::log_query::{self, Refusal};

/// The container whose log is wanted.
struct Wanted {
    uid: String,
    /// Without the runtime's name in front.
    container_id: String,
    path: PathBuf,
}

/// A container's log, as asked for.
pub(crate) async fn get(
    State(state): State<super::State>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let query = match log_query::parse(&query, Timestamp::now()) {
        Ok(query) => query,
        Err(Refusal::Unreadable(why)) => return (StatusCode::BAD_REQUEST, why).into_response(),
        Err(Refusal::Invalid(why)) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, why).into_response();
        }
    };
    let wanted = match find(&state, &namespace, &pod, &container, query.previous).await {
        Ok(wanted) => wanted,
        Err(answer) => return answer,
    };
    let ended = state.peers.until_ended(wanted.uid, wanted.container_id);
    // Packed files are read through to find their end.
    let open = move || Reader::open(&wanted.path, query.options, ended);
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
                LogError::Open { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                    StatusCode::NOT_FOUND
                }
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (code, polylet_kit::report(&error)).into_response()
        }
    }
}

/// The log as a body. An error in the middle ends it early: the status line has long been sent.
fn chunks(reader: Reader) -> impl futures::Stream<Item = Result<Bytes, LogError>> {
    stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk.map(|chunk| Bytes::from(chunk.bytes)), reader))
    })
}

async fn find(
    state: &super::State,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<Wanted, Response> {
    let pods = state
        .peers
        .pods()
        .await
        .map_err(|status| PeerError(status).into_response())?;
    let matching = pods.iter().find_map(|one| {
        let reference = one.r#ref.as_ref()?;
        (reference.namespace == namespace && reference.name == pod).then_some((one, reference))
    });
    let Some((found, reference)) = matching else {
        let why = format!("pod {namespace}/{pod} not found");
        return Err((StatusCode::NOT_FOUND, why).into_response());
    };
    let status: PodStatus = serde_json::from_slice(&found.status).unwrap_or_default();
    let Some(named) = all_statuses(&status).find(|one| one.name == container) else {
        let why = format!("container {container} not found in pod {namespace}/{pod}");
        return Err((StatusCode::NOT_FOUND, why).into_response());
    };
    let Some((attempt, container_id)) = attempt(named, previous) else {
        let what = if previous { "previous terminated " } else { "" };
        let waiting = named
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let why = match reason {
            Some(reason) if !previous => {
                format!("container {container:?} in pod {pod:?} is waiting to start: {reason}")
            }
            _ => format!("{what}container {container:?} in pod {pod:?} not found"),
        };
        return Err((StatusCode::BAD_REQUEST, why).into_response());
    };
    let directory = names::pod_log_dir(
        &state.pod_logs,
        namespace,
        pod,
        &reference.uid.clone().into(),
    );
    Ok(Wanted {
        uid: reference.uid.clone(),
        container_id,
        path: directory.join(container).join(format!("{attempt}.log")),
    })
}

/// Which attempt's log is meant, and its container's id. As upstream: the running container, or the
/// one that has ended last; with `previous` the one before.
fn attempt(status: &ContainerStatus, previous: bool) -> Option<(i32, String)> {
    let state = status.state.as_ref();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let bare = |id: Option<&String>| {
        let id = id?;
        Some(id.rsplit("//").next().unwrap_or(id).to_owned())
    };
    if previous {
        let id = bare(last?.container_id.as_ref())?;
        let waits = state.is_some_and(|state| state.waiting.is_some());
        let count = if waits {
            status.restart_count
        } else {
            status.restart_count - 1
        };
        return Some((count.max(0), id));
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return Some((status.restart_count, bare(status.container_id.as_ref())?));
    }
    let terminated = ended.or(last)?;
    Some((
        status.restart_count,
        bare(terminated.container_id.as_ref())?,
    ))
}

/// The statuses of a pod's containers of every kind.
pub(crate) fn all_statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    regular
        .chain(init)
        .chain(status.ephemeral_container_statuses.iter().flatten())
}
