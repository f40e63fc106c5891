use std::time::Duration;

use polylet_wire::runtime::v1;

use super::{Call, Runtime, call_span, gone_is_done};
use crate::CriError;

/// What a command inside a container left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
}

/// A command to be run on streams.
pub use polylet_wire::runtime::v1::ExecRequest;

impl Runtime {
    /// Makes a container in a sandbox; its id.
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
            k8s.container.name = %name.name, attempt = name.attempt,
            sandbox.id = sandbox_id, container.id = tracing::field::Empty);
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "CreateContainer",
            id: &name.name,
            limit: Some(self.timeout),
            span: span.clone(),
        }
        .run(request, async |r| client.create_container(r).await)
        .await?;
        span.record("container.id", &answer.container_id);
        Ok(answer.container_id)
    }

    /// Starts a container that was made.
    pub async fn start_container(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        Call {
            name: "StartContainer",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.StartContainer" of self.about, container.id = id),
        }
        .run(request, async |r| client.start_container(r).await)
        .await
        .map(drop)
    }

    /// Stops a container, with `grace` between the stop signal and the kill; one that is gone is
    /// fine.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CriError> {
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: seconds_up(grace),
        };
        let mut client = self.runtime_service();
        let result = Call {
            name: "StopContainer",
            id,
            limit: Some(grace.saturating_add(self.timeout)),
            span: call_span!(changes "cri.StopContainer" of self.about, container.id = id,
                grace_seconds = request.timeout),
        }
        .run(request, async |r| client.stop_container(r).await)
        .await;
        gone_is_done(result.map(drop))
    }

    /// Takes a container's record away, killing it if it runs; one that is gone is fine.
    pub async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = Call {
            name: "RemoveContainer",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.RemoveContainer" of self.about, container.id = id),
        }
        .run(request, async |r| client.remove_container(r).await)
        .await;
        gone_is_done(result.map(drop))
    }

    /// The containers that fit `filter`, all of them without one.
    pub async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListContainers",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListContainers"),
        }
        .run(v1::ListContainersRequest { filter }, async |r| {
            client.list_containers(r).await
        })
        .await?;
        Ok(answer.containers)
    }

    /// All that is known of one container.
    pub async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CriError> {
        Ok(self
            .container_status_raw(id, false)
            .await?
            .status
            .unwrap_or_default())
    }

    /// The same with the runtime's own words, where `verbose` asks for them.
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
        Call {
            name: "ContainerStatus",
            id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ContainerStatus", container.id = id),
        }
        .run(request, async |r| client.container_status(r).await)
        .await
    }

    /// Changes the sizes of a running container.
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
        Call {
            name: "UpdateContainerResources",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.UpdateContainerResources" of self.about, container.id = id),
        }
        .run(request, async |r| {
            client.update_container_resources(r).await
        })
        .await
        .map(drop)
    }

    /// Has the runtime open a container's log anew, after the file was moved away.
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), CriError> {
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        Call {
            name: "ReopenContainerLog",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.ReopenContainerLog" of self.about, container.id = id),
        }
        .run(request, async |r| client.reopen_container_log(r).await)
        .await
        .map(drop)
    }

    /// Runs a command in a container to its end. Without a timeout it may run for ever; past its
    /// timeout it is killed and the error says `is_deadline`.
    ///
    /// A debug-level span, though it runs something: periodic probes are no news.
    pub async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<ExecOutput, CriError> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: timeout.map_or(0, seconds_up),
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ExecSync",
            id,
            limit: timeout.map(|t| t.saturating_add(self.timeout)),
            span: call_span!(reads "cri.ExecSync", container.id = id),
        }
        .run(request, async |r| client.exec_sync(r).await)
        .await?;
        Ok(ExecOutput {
            stdout: answer.stdout,
            stderr: answer.stderr,
            exit_code: answer.exit_code,
        })
    }

    /// The address at which the runtime runs a command on streams.
    pub async fn exec(&self, request: ExecRequest) -> Result<String, CriError> {
        let id = request.container_id.clone();
        let mut client = self.runtime_service();
        let answer = Call {
            name: "Exec",
            id: &id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.Exec", container.id = %id),
        }
        .run(request, async |r| client.exec(r).await)
        .await?;
        Ok(answer.url)
    }

    /// The address at which the runtime connects to a container's own streams.
    pub async fn attach(&self, request: v1::AttachRequest) -> Result<String, CriError> {
        let id = request.container_id.clone();
        let mut client = self.runtime_service();
        let answer = Call {
            name: "Attach",
            id: &id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.Attach", container.id = %id),
        }
        .run(request, async |r| client.attach(r).await)
        .await?;
        Ok(answer.url)
    }

    /// Writes a container's whole state to `location`; without a timeout, the usual deadline.
    pub async fn checkpoint_container(
        &self,
        id: &str,
        location: &str,
        timeout: Option<Duration>,
    ) -> Result<(), CriError> {
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: location.to_owned(),
            timeout: timeout.map_or(0, seconds_up),
        };
        let mut client = self.runtime_service();
        Call {
            name: "CheckpointContainer",
            id,
            limit: Some(timeout.unwrap_or(self.timeout)),
            span: call_span!(changes "cri.CheckpointContainer" of self.about, container.id = id),
        }
        .run(request, async |r| client.checkpoint_container(r).await)
        .await
        .map(drop)
    }
}

// The interface counts whole seconds; a fraction must not turn into "none".
fn seconds_up(time: Duration) -> i64 {
    let whole = time
        .as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(whole).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_seconds_go_up() {
        assert_eq!(seconds_up(Duration::ZERO), 0);
        assert_eq!(seconds_up(Duration::from_millis(1)), 1);
        assert_eq!(seconds_up(Duration::from_secs(30)), 30);
        assert_eq!(seconds_up(Duration::MAX), i64::MAX);
    }
}
