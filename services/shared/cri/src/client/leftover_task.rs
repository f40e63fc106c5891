//! Tasks of containers that never ran. When a StartContainer is given up at the wrong moment, as by the end
//! of its client, containerd keeps the task that it has just made, reports the container as not running, and
//! refuses to remove it ever after (containerd's issue 11037). The CRI has no call for this; containerd's own
//! API, which it serves on the same socket, has.

use std::future::Future;

use polylet_wire::containerd::v1::tasks_client::TasksClient;
use polylet_wire::containerd::v1::{DeleteTaskRequest, KillRequest};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use super::RuntimeClient;
use crate::CriError;

/// The namespace of everything that containerd's CRI plugin makes.
const NAMESPACE: &str = "k8s.io";
const SIGKILL: u32 = 9;

/// Whether the removal of a container failed because of its task. A container that the runtime reports as
/// running is stopped by the removal itself.
pub(super) fn is_in_the_way(error: &CriError) -> bool {
    error.code() == Code::FailedPrecondition
        && error.message().contains("cannot delete running task")
}

impl RuntimeClient {
    /// Kills and deletes the task of a container that the runtime reports as not running. A missing task is
    /// a success.
    pub(super) async fn end_leftover_task(&self, id: &str) -> Result<(), CriError> {
        tracing::info!(
            container_id = id,
            "ending the task of a container whose start was given up"
        );
        let mut client = TasksClient::new(self.channel.clone());
        let kill = KillRequest {
            container_id: id.to_owned(),
            signal: SIGKILL,
            all: true,
            ..Default::default()
        };
        let killed = client.kill(self.in_namespace(kill));
        self.within_timeout("containerd's Tasks.Kill", id, killed)
            .await?;
        let delete = DeleteTaskRequest {
            container_id: id.to_owned(),
        };
        let deleted = client.delete(self.in_namespace(delete));
        self.within_timeout("containerd's Tasks.Delete", id, deleted)
            .await
    }

    fn in_namespace<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        let namespace = MetadataValue::from_static(NAMESPACE);
        request
            .metadata_mut()
            .insert("containerd-namespace", namespace);
        request
    }

    async fn within_timeout<T>(
        &self,
        call: &'static str,
        id: &str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<(), CriError> {
        let answer = tokio::time::timeout(self.timeout, answer).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(super::timeout_message(
                self.timeout,
            )))
        });
        let result = answer.map_err(|status| CriError::new(call, id, &status));
        super::ignore_not_found(result.map(drop))
    }
}
