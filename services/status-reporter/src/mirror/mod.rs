//! Creates, replaces and deletes mirror pods of static pods, as decided in `core/mirror`. No static pod
//! depends on its mirror pod.

use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use polylet_api::{ApiConnection, ApiErrorKind};
use polylet_schedule::TokenBucket;

use crate::core::mirror::{MirrorPodManager, MirrorRequest};
use crate::report::request::{self, ApiWriteError};

type CompletedMirror = (MirrorRequest, Result<(), ApiWriteError>);

/// Sends the requests of the mirror pod manager.
pub(crate) struct MirrorPodClient {
    connection: ApiConnection,
    pub(crate) manager: MirrorPodManager,
    in_flight: FuturesUnordered<LocalBoxFuture<'static, CompletedMirror>>,
}

impl MirrorPodClient {
    pub(crate) fn new(connection: ApiConnection) -> Self {
        Self {
            connection,
            manager: MirrorPodManager::default(),
            in_flight: FuturesUnordered::new(),
        }
    }

    /// Sends the requests that are due.
    pub(crate) fn send_due(&mut self, rate_limit: &mut TokenBucket<Duration>, now: Duration) {
        for request in self.manager.take_due(rate_limit, now) {
            let connection = self.connection.clone();
            self.in_flight.push(Box::pin(async move {
                let result = send(&connection, &request).await;
                (request, result)
            }));
        }
    }

    /// The next completed request; pending while none is in flight.
    pub(crate) async fn next(&mut self) -> CompletedMirror {
        match self.in_flight.next().await {
            Some(completed) => completed,
            None => std::future::pending().await,
        }
    }

    /// Records the result of a request.
    pub(crate) fn handle_completed(&mut self, (request, result): CompletedMirror, now: Duration) {
        if let Err(error) = &result {
            tracing::warn!(
                pod = %format_args!("{}/{}", request.namespace, request.name),
                error = polylet_kit::report(error),
                "failed to update mirror pod; retrying"
            );
        }
        self.manager.on_completed(&request, result.is_ok(), now);
    }
}

async fn send(connection: &ApiConnection, request: &MirrorRequest) -> Result<(), ApiWriteError> {
    let pods = format!("/api/v1/namespaces/{}/pods", request.namespace);
    if let Some(uid) = &request.delete {
        match request::delete(connection, format!("{pods}/{}", request.name), uid).await {
            Err(error) if error.kind() != ApiErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if let Some(body) = &request.create {
        match request::create(connection, pods, body).await {
            // The watch delivers the existing pod; it is replaced if it is outdated.
            Err(error) if error.kind() == ApiErrorKind::AlreadyExists => {}
            created => created.map(drop)?,
        }
    }
    Ok(())
}
