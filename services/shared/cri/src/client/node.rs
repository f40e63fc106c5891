use polylet_wire::runtime::v1;
use tonic::Streaming;

use super::{Call, Runtime, call_span};
use crate::CriError;

impl Runtime {
    /// The runtime's name and version.
    pub async fn version(&self) -> Result<v1::VersionResponse, CriError> {
        let mut client = self.runtime_service();
        Call {
            name: "Version",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.Version"),
        }
        .run(v1::VersionRequest::default(), async |r| {
            client.version(r).await
        })
        .await
    }

    /// Whether runtime and network are ready, and what the handlers can do.
    pub async fn status(&self) -> Result<v1::StatusResponse, CriError> {
        self.status_of(false).await
    }

    /// The same with the runtime's own configuration as JSON in `info`.
    pub async fn verbose_status(&self) -> Result<v1::StatusResponse, CriError> {
        self.status_of(true).await
    }

    async fn status_of(&self, verbose: bool) -> Result<v1::StatusResponse, CriError> {
        let mut client = self.runtime_service();
        Call {
            name: "Status",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.Status"),
        }
        .run(v1::StatusRequest { verbose }, async |r| {
            client.status(r).await
        })
        .await
    }

    /// The runtime's cgroup driver; containerd before 2.0 says Unimplemented.
    pub async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CriError> {
        let mut client = self.runtime_service();
        Call {
            name: "RuntimeConfig",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.RuntimeConfig"),
        }
        .run(v1::RuntimeConfigRequest {}, async |r| {
            client.runtime_config(r).await
        })
        .await
    }

    /// Tells the runtime the address range of this node's pods.
    pub async fn update_runtime_config(&self, pod_cidr: &str) -> Result<(), CriError> {
        let network_config = Some(v1::NetworkConfig {
            pod_cidr: pod_cidr.to_owned(),
        });
        let request = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(v1::RuntimeConfig { network_config }),
        };
        let mut client = self.runtime_service();
        Call {
            name: "UpdateRuntimeConfig",
            id: pod_cidr,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.UpdateRuntimeConfig", pod_cidr),
        }
        .run(request, async |r| client.update_runtime_config(r).await)
        .await
        .map(drop)
    }

    /// Container events as they happen. There is no replay: they are hints, lists are the truth.
    ///
    /// Runtimes written in Go answer only with the first event, so this may wait as long as
    /// nothing happens; a runtime without events (Unimplemented) or away fails at once.
    pub async fn container_events(
        &self,
    ) -> Result<Streaming<v1::ContainerEventResponse>, CriError> {
        let mut client = self.runtime_service();
        Call {
            name: "GetContainerEvents",
            id: "",
            limit: None,
            span: tracing::Span::none(),
        }
        .run(v1::GetEventsRequest {}, async |r| {
            client.get_container_events(r).await
        })
        .await
    }
}

impl CriError {
    /// The end of an event stream, as an error of the call that opened it.
    pub fn of_events(status: &tonic::Status) -> Self {
        Self::new("GetContainerEvents", "", status)
    }
}
