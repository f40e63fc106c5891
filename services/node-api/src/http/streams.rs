//! `/exec`, `/attach`, `/portForward` and `/run`: commands in containers, and ports of pods.

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use polylet_wire::common::v1::PodRef;
use polylet_wire::status::v1::PodStatus;
use serde::Deserialize;
use tonic::{Code, Status};

use super::{HandlerState, PeerError};
use crate::core::pods;
use crate::core::streaming::request::{StreamOptions, exec_command, forwarded_ports, run_command};
use crate::core::streaming::upgrade::is_websocket;
use crate::streaming::{StreamRequest, serve_command, serve_ports};

/// Seconds after which a refused client may try again, as upstream.
const RETRY_SECONDS: &str = "60";

/// The path of a request for a container.
#[derive(Debug, Deserialize)]
pub(crate) struct ContainerPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

/// The path of a request for a pod.
#[derive(Debug, Deserialize)]
pub(crate) struct PodPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
}

type Pairs = Vec<(String, String)>;

/// A pod that a request names.
#[derive(Debug)]
pub(crate) struct NamedPod {
    pub(crate) reference: PodRef,
    pub(crate) manifest: Vec<u8>,
}

/// Runs a command with its streams. As upstream, a uid that no pod of the name has does not matter.
pub(crate) async fn exec(
    State(state): State<HandlerState>,
    Path(path): Path<ContainerPath>,
    Query(query): Query<Pairs>,
    request: Request,
) -> Result<Response, Response> {
    let options = StreamOptions::parse(&query).map_err(bad_request)?;
    let pod = find(&state, &path.namespace, &path.pod, path.uid.as_deref()).await?;
    let permit = state.streams.admit().ok_or_else(too_many)?;
    let command = exec_command(&query);
    let prepared = state
        .streaming
        .exec(pod.reference, path.container, command, options);
    let url = prepared.await.map_err(refused)?;
    let request = StreamRequest::new(request);
    Ok(serve_command(&state.streams, permit, request, &url, options).await)
}

/// Connects to the streams of a container.
pub(crate) async fn attach(
    State(state): State<HandlerState>,
    Path(path): Path<ContainerPath>,
    Query(query): Query<Pairs>,
    request: Request,
) -> Result<Response, Response> {
    let options = StreamOptions::parse(&query).map_err(bad_request)?;
    let pod = find(&state, &path.namespace, &path.pod, path.uid.as_deref()).await?;
    let full_name = format!("{}_{}", path.pod, path.namespace);
    if path.uid.is_some_and(|uid| uid != pod.reference.uid) {
        return Err(internal(format!("pod {full_name} not found")));
    }
    // The terminal is the container's, and not the client's to choose.
    let Some(tty) = pods::has_tty(&pod.manifest, &path.container) else {
        let container = &path.container;
        return Err(internal(format!(
            "container {container} not found in pod {full_name}"
        )));
    };
    let permit = state.streams.admit().ok_or_else(too_many)?;
    let of_container = StreamOptions { tty, ..options };
    let prepared = state
        .streaming
        .attach(pod.reference, path.container, of_container);
    let url = prepared.await.map_err(refused)?;
    let request = StreamRequest::new(request);
    Ok(serve_command(&state.streams, permit, request, &url, options).await)
}

/// Forwards ports.
pub(crate) async fn port_forward(
    State(state): State<HandlerState>,
    Path(path): Path<PodPath>,
    Query(query): Query<Pairs>,
    request: Request,
) -> Result<Response, Response> {
    let request = StreamRequest::new(request);
    let names_ports = is_websocket(request.headers()) && !state.streams.tunnels(&request);
    let ports = if names_ports {
        forwarded_ports(&query).map_err(bad_request)?
    } else {
        Vec::new()
    };
    let pod = find(&state, &path.namespace, &path.pod, path.uid.as_deref()).await?;
    if path.uid.is_some_and(|uid| uid != pod.reference.uid) {
        return Err((StatusCode::NOT_FOUND, "pod not found").into_response());
    }
    let permit = state.streams.admit().ok_or_else(too_many)?;
    let prepared = state.streaming.port_forward(pod.reference, ports);
    let url = prepared.await.map_err(refused)?;
    Ok(serve_ports(&state.streams, permit, request, &url).await)
}

/// Runs a command and responds with its output.
pub(crate) async fn run(
    State(state): State<HandlerState>,
    Path(path): Path<ContainerPath>,
    Query(query): Query<Pairs>,
) -> Result<Response, Response> {
    let pod = find(&state, &path.namespace, &path.pod, path.uid.as_deref()).await?;
    let permit = state.streams.admit().ok_or_else(too_many)?;
    let command = run_command(&query);
    let words = command.join(" ");
    let call = state
        .streaming
        .run_command(pod.reference, path.container, command);
    let output = call
        .await
        .map_err(|status| internal(status.message().to_owned()))?;
    drop(permit);
    if output.exit_code != 0 {
        let (code, stderr) = (output.exit_code, String::from_utf8_lossy(&output.stderr));
        return Err(internal(format!(
            "command '{words}' exited with {code}: {stderr}"
        )));
    }
    let text = [output.stdout, output.stderr].concat();
    if text.is_empty() {
        return Ok(StatusCode::OK.into_response());
    }
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// The pod of a name: that with the uid, or the first if none has it.
pub(crate) async fn find(
    state: &HandlerState,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Result<NamedPod, Response> {
    let found = state.peers.pods_named(namespace, name).await;
    let found = found.map_err(|status| PeerError(status).into_response())?;
    let missing = || (StatusCode::NOT_FOUND, "pod does not exist").into_response();
    choose(found, uid).ok_or_else(missing)
}

/// The pod with a uid among those of a name, or the first if none has it.
fn choose(found: Vec<PodStatus>, uid: Option<&str>) -> Option<NamedPod> {
    let named = found.into_iter().filter_map(|pod| {
        Some(NamedPod {
            reference: pod.r#ref?,
            manifest: pod.manifest.into(),
        })
    });
    // The first of all that do not have it.
    named.min_by_key(|pod| uid.is_some_and(|uid| uid != pod.reference.uid))
}

/// Upstream's response when the runtime does not prepare a stream.
pub(crate) fn refused(status: Status) -> Response {
    let message = status.message().to_owned();
    match status.code() {
        Code::NotFound => (StatusCode::NOT_FOUND, message).into_response(),
        Code::ResourceExhausted => {
            let headers = [(RETRY_AFTER, RETRY_SECONDS)];
            (StatusCode::TOO_MANY_REQUESTS, headers, message).into_response()
        }
        _ => internal(message),
    }
}

/// As upstream when the runtime has too many streams.
fn too_many() -> Response {
    refused(Status::resource_exhausted(
        "maximum number of in-flight requests exceeded",
    ))
}

fn bad_request(message: String) -> Response {
    (StatusCode::BAD_REQUEST, message).into_response()
}

fn internal(message: String) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_its_uid_wherever_it_is_in_the_list() {
        let pod = |uid: &str| PodStatus {
            r#ref: Some(PodRef {
                uid: uid.to_owned(),
                ..PodRef::default()
            }),
            ..PodStatus::default()
        };
        let list = || vec![PodStatus::default(), pod("new"), pod("old"), pod("older")];
        for (uid, expected) in [
            (None, "new"),
            (Some("new"), "new"),
            (Some("old"), "old"),
            (Some("older"), "older"),
            (Some("none"), "new"),
        ] {
            let found = choose(list(), uid).unwrap();
            assert_eq!(found.reference.uid, expected, "{uid:?}");
        }
        assert!(choose(Vec::new(), None).is_none());
    }
}
