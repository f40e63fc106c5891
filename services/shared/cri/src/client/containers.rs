use std::time::Duration;

use polylet_wire::runtime::v1;

use super::{CriCall, RuntimeClient, call_span, ignore_not_found, leftover_task};
use crate::CriError;

/// The result of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The exit code.
    pub exit_code: i32,
}

/// A command to run with streaming.
pub use polylet_wire::runtime::v1::ExecRequest;

impl RuntimeClient {
    /// Creates a container in a sandbox and returns its id.
    pub async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CriError> {
        let pod = sandbox_config.metadata.clone().unwrap_or_default();
        let name = config.metadata.clone().unwrap_or_default();
        let span = call_span!(changes "cri.CreateContainer", k8s.pod.uid = %pod.uid,
            k8s.pod.name = %pod.name, k8s.namespace.name = %pod.namespace,
            k8s.container.name = %name.name, polylet.attempt = name.attempt,
            polylet.sandbox.id = sandbox_id, container.id = tracing::field::Empty);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "CreateContainer",
            id: &name.name,
            timeout: Some(self.timeout),
            span: span.clone(),
        }
        .run(request, async |r| client.create_container(r).await)
        .await?;
        span.record("container.id", &response.container_id);
        Ok(response.container_id)
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "StartContainer",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.StartContainer" of self.context, container.id = id),
        }
        .run(request, async |r| client.start_container(r).await)
        .await
        .map(drop)
    }

    /// Stops a container, with `grace` between the stop signal and SIGKILL. A missing container is a
    /// success.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: ceil_seconds(grace),
        };
        let mut client = self.runtime_service();
        let result = CriCall {
            server: &self.address,
            name: "StopContainer",
            id,
            timeout: Some(grace.saturating_add(self.timeout)),
            span: call_span!(changes "cri.StopContainer" of self.context, container.id = id,
                polylet.grace_period_seconds = request.timeout),
        }
        .run(request, async |r| client.stop_container(r).await)
        .await;
        ignore_not_found(result.map(drop))
    }

    /// Removes a container, and kills it if it is running, also where a start that was given up has left
    /// its task. A missing container is a success.
    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        match self.remove_stopped_container(id).await {
            Err(error) if leftover_task::is_in_the_way(&error) => {
                self.end_leftover_task(id).await?;
                self.remove_stopped_container(id).await
            }
            result => result,
        }
    }

    async fn remove_stopped_container(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = CriCall {
            server: &self.address,
            name: "RemoveContainer",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.RemoveContainer" of self.context, container.id = id),
        }
        .run(request, async |r| client.remove_container(r).await)
        .await;
        ignore_not_found(result.map(drop))
    }

    /// Lists the containers that match `filter`.
    pub async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListContainers",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListContainers"),
        }
        .run(v1::ListContainersRequest { filter }, async |r| {
            client.list_containers(r).await
        })
        .await?;
        Ok(response.containers)
    }

    /// The status of a container.
    pub async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CriError> {
        Ok(self
            .container_status_raw(id, false)
            .await?
            .status
            .unwrap_or_default())
    }

    /// The same, with the runtime's own information if `verbose` is set.
    pub async fn container_status_raw(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<v1::ContainerStatusResponse, CriError> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose,
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "ContainerStatus",
            id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ContainerStatus", container.id = id),
        }
        .run(request, async |r| client.container_status(r).await)
        .await
    }

    /// Updates the resources of a running container.
    pub async fn update_container_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CriError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..Default::default()
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "UpdateContainerResources",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.UpdateContainerResources" of self.context, container.id = id),
        }
        .run(request, async |r| {
            client.update_container_resources(r).await
        })
        .await
        .map(drop)
    }

    /// Has the runtime reopen a container's log file after it was rotated.
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), CriError> {
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "ReopenContainerLog",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.ReopenContainerLog" of self.context, container.id = id),
        }
        .run(request, async |r| client.reopen_container_log(r).await)
        .await
        .map(drop)
    }

    /// Runs a command in a container and waits for its exit. After `timeout` it is killed, and
    /// [`CriError::is_deadline`] is true.
    ///
    /// The span has debug level, as most commands are periodic probes.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecOutput, CriError> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: timeout.map_or(0, ceil_seconds),
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ExecSync",
            id,
            timeout: timeout.map(|t| t.saturating_add(self.timeout)),
            span: call_span!(reads "cri.ExecSync", container.id = id),
        }
        .run(request, async |r| client.exec_sync(r).await)
        .await?;
        Ok(ExecOutput {
            stdout: response.stdout,
            stderr: response.stderr,
            exit_code: response.exit_code,
        })
    }

    /// The URL at which the runtime streams a command.
    pub async fn exec(&self, request: ExecRequest) -> Result<String, CriError> {
        let id = request.container_id.clone();
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "Exec",
            id: &id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.Exec", container.id = %id),
        }
        .run(request, async |r| client.exec(r).await)
        .await?;
        Ok(response.url)
    }

    /// The URL at which the runtime streams a container's own input and output.
    pub async fn attach(&self, request: v1::AttachRequest) -> Result<String, CriError> {
        let id = request.container_id.clone();
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "Attach",
            id: &id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.Attach", container.id = %id),
        }
        .run(request, async |r| client.attach(r).await)
        .await?;
        Ok(response.url)
    }

    /// Writes a checkpoint of a container to `location`.
    pub async fn checkpoint_container(
        &self,
        id: &str,
        location: &str,
        timeout: Option<Duration>,
    ) -> Result<(), CriError> {
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: location.to_owned(),
            timeout: timeout.map_or(0, ceil_seconds),
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "CheckpointContainer",
            id,
            timeout: Some(timeout.unwrap_or(self.timeout)),
            span: call_span!(changes "cri.CheckpointContainer" of self.context, container.id = id),
        }
        .run(request, async |r| client.checkpoint_container(r).await)
        .await
        .map(drop)
    }
}

// The CRI has whole seconds, and zero means no timeout: fractions are rounded up.
fn ceil_seconds(duration: Duration) -> i64 {
    let seconds = duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_seconds_are_rounded_up() {
        assert_eq!(ceil_seconds(Duration::ZERO), 0);
        assert_eq!(ceil_seconds(Duration::from_millis(1)), 1);
        assert_eq!(ceil_seconds(Duration::from_secs(30)), 30);
        assert_eq!(ceil_seconds(Duration::MAX), i64::MAX);
    }
}
