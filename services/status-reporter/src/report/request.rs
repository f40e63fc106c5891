//! The requests themselves.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_api::{ConnectError, Connection, Refusal, kube};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::core::report::pods::{End, Job};
use crate::core::report::want::Step;

/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// There is no client.
    #[error("the API server cannot be asked")]
    Connect(#[source] ConnectError),
    /// The request could not be put in words.
    #[error("the request for {path}")]
    Build {
        /// What was asked for.
        path: String,
        /// What is wrong.
        #[source]
        source: http::Error,
    },
    /// The API server said no, or nothing.
    #[error("{method} {path}")]
    Asked {
        /// PATCH, POST or DELETE.
        method: &'static str,
        /// What was asked for.
        path: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// It took too long.
    #[error("{method} {path}: no answer within {} s", PATIENCE.as_secs())]
    Slow {
        /// PATCH, POST or DELETE.
        method: &'static str,
        /// What was asked for.
        path: String,
    },
}

impl Failed {
    /// What kind of failure it is.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Failed::Connect(_) | Failed::Slow { .. } => Refusal::Unreachable,
            Failed::Build { .. } => Refusal::Invalid,
            Failed::Asked { source, .. } => Refusal::of(source),
        }
    }
}

/// What counts of the answer to a patch.
#[derive(Deserialize)]
struct Patched {
    status: PodStatus,
}

/// Does a job.
pub(crate) async fn send(connection: &Connection, job: &Job) -> Result<End, Failed> {
    let begun = Instant::now();
    let pod = format!("/api/v1/namespaces/{}/pods/{}", job.namespace, job.name);
    let end = match &job.step {
        Step::Patch(body) => {
            let answer = patch(connection, format!("{pod}/status"), body).await?;
            match serde_json::from_str(&answer) {
                Ok(Patched { status }) => End::Patched(Arc::new(status)),
                // Some other answer than the pod: the watch tells how it stands.
                Err(_) => End::Refused,
            }
        }
        Step::Delete => match delete(connection, pod, &job.uid).await {
            // Somebody else was faster.
            Err(failed) if failed.refusal() == Refusal::NotFound => End::Deleted,
            deleted => deleted.map(|()| End::Deleted)?,
        },
    };
    let told = if crate::report::tells_ready(&end) {
        "ready"
    } else {
        "told"
    };
    tracing::Span::current().record("result", told);
    tracing::debug!(
        k8s.pod.uid = &*job.uid,
        k8s.pod.name = &*job.name,
        ms = begun.elapsed().as_millis() as u64,
        "told the cluster"
    );
    Ok(end)
}

/// A strategic merge; the answer is the object, as JSON.
pub(crate) async fn patch(
    connection: &Connection,
    path: String,
    body: &Value,
) -> Result<String, Failed> {
    let kind = "application/strategic-merge-patch+json";
    ask(connection, "PATCH", path, kind, body).await
}

/// Makes an object; the answer is the object, as JSON.
pub(crate) async fn create(
    connection: &Connection,
    path: String,
    body: &Value,
) -> Result<String, Failed> {
    ask(connection, "POST", path, "application/json", body).await
}

/// Removes the pod with this uid, and no other of its name, at once.
pub(crate) async fn delete(connection: &Connection, path: String, uid: &str) -> Result<(), Failed> {
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "gracePeriodSeconds": 0, "preconditions": { "uid": uid },
    });
    let answer = ask(connection, "DELETE", path, "application/json", &body);
    answer.await.map(drop)
}

async fn ask(
    connection: &Connection,
    method: &'static str,
    path: String,
    kind: &str,
    body: &Value,
) -> Result<String, Failed> {
    let request = http::Request::builder()
        .method(method)
        .uri(&path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(body.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(source) => return Err(Failed::Build { path, source }),
    };
    let client = connection.client().await.map_err(Failed::Connect)?;
    match timeout(PATIENCE, client.request_text(request)).await {
        Err(_) => Err(Failed::Slow { method, path }),
        Ok(Err(source)) => {
            let refusal = Refusal::of(&source);
            if refusal == Refusal::Unauthorized {
                connection.refused();
            }
            let source = Box::new(source);
            Err(Failed::Asked {
                method,
                path,
                source,
            })
        }
        Ok(Ok(answer)) => Ok(answer),
    }
}
