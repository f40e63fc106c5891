use polylet_wire::runtime::v1;
use tonic::Streaming;

use super::{CriCall, RuntimeClient, call_span};
use crate::CriError;

impl RuntimeClient {
    /// The runtime's name and version.
    pub async fn version(&self) -> Result<v1::VersionResponse, CriError> {
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "Version",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.Version"),
        }
        .run(v1::VersionRequest::default(), async |r| {
            client.version(r).await
        })
        .await
    }

    /// Whether runtime and network are ready, and the features of the runtime handlers.
    pub async fn status(&self) -> Result<v1::StatusResponse, CriError> {
        self.status_with(false).await
    }

    /// The same, with the runtime's configuration as JSON in `info`.
    pub async fn verbose_status(&self) -> Result<v1::StatusResponse, CriError> {
        self.status_with(true).await
    }

    async fn status_with(&self, verbose: bool) -> Result<v1::StatusResponse, CriError> {
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "Status",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.Status"),
        }
        .run(v1::StatusRequest { verbose }, async |r| {
            client.status(r).await
        })
        .await
    }

    /// The runtime's cgroup driver. Containerd before 2.0 returns Unimplemented.
    pub async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CriError> {
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "RuntimeConfig",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.RuntimeConfig"),
        }
        .run(v1::RuntimeConfigRequest {}, async |r| {
            client.runtime_config(r).await
        })
        .await
    }

    /// Sends the pod CIDR of this node to the runtime.
    pub async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), CriError> {
        let network_config = Some(v1::NetworkConfig {
            pod_cidr: pod_cidr.to_owned(),
        });
        let request = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(v1::RuntimeConfig { network_config }),
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "UpdateRuntimeConfig",
            id: pod_cidr,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.UpdateRuntimeConfig", polylet.pod.network = pod_cidr),
        }
        .run(request, async |r| client.update_runtime_config(r).await)
        .await
        .map(drop)
    }

    /// Container events as they happen. There is no replay: events are hints, and lists are the truth.
    ///
    /// Runtimes written in Go send the response headers with the first event, so this may wait for one.
    /// It fails at once if the runtime is unavailable or has no events (Unimplemented).
    pub async fn container_events(
        &self,
    ) -> Result<Streaming<v1::ContainerEventResponse>, CriError> {
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "GetContainerEvents",
            id: "",
            timeout: None,
            span: tracing::Span::none(),
        }
        .run(v1::GetEventsRequest {}, async |r| {
            client.get_container_events(r).await
        })
        .await
    }
}

impl CriError {
    /// The error of an event stream that has ended.
    pub fn from_event_stream(status: &tonic::Status) -> Self {
        Self::new("GetContainerEvents", "", status)
    }
}
