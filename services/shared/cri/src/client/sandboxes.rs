use polylet_wire::runtime::v1;

use super::{CriCall, RuntimeClient, call_span, ignore_not_found};
use crate::CriError;

impl RuntimeClient {
    /// Creates and starts a pod's sandbox with its network, and returns its id.
    pub async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CriError> {
        let pod = config.metadata.clone().unwrap_or_default();
        let span = call_span!(changes "cri.RunPodSandbox", k8s.pod.uid = %pod.uid,
            k8s.pod.name = %pod.name, k8s.namespace.name = %pod.namespace,
            polylet.attempt = pod.attempt, polylet.sandbox.id = tracing::field::Empty);
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.to_owned(),
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "RunPodSandbox",
            id: &pod.name,
            // Twice the usual timeout, as upstream, since network setup is slow.
            timeout: Some(self.timeout * 2),
            span: span.clone(),
        }
        .run(request, async |r| client.run_pod_sandbox(r).await)
        .await?;
        span.record("polylet.sandbox.id", &response.pod_sandbox_id);
        Ok(response.pod_sandbox_id)
    }

    /// Stops the containers of a sandbox and tears down its network. A missing sandbox is a success.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = CriCall {
            server: &self.address,
            name: "StopPodSandbox",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.StopPodSandbox" of self.context, polylet.sandbox.id = id),
        }
        .run(request, async |r| client.stop_pod_sandbox(r).await)
        .await;
        ignore_not_found(result.map(drop))
    }

    /// Removes a sandbox. A missing sandbox is a success.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = CriCall {
            server: &self.address,
            name: "RemovePodSandbox",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.RemovePodSandbox" of self.context, polylet.sandbox.id = id),
        }
        .run(request, async |r| client.remove_pod_sandbox(r).await)
        .await;
        ignore_not_found(result.map(drop))
    }

    /// The status of a sandbox.
    pub async fn pod_sandbox_status(
        &self,
        id: &str,
    ) -> Result<v1::PodSandboxStatusResponse, CriError> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "PodSandboxStatus",
            id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.PodSandboxStatus", polylet.sandbox.id = id),
        }
        .run(request, async |r| client.pod_sandbox_status(r).await)
        .await
    }

    /// Lists the sandboxes that match `filter`.
    pub async fn list_pod_sandboxes(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListPodSandbox",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandbox"),
        }
        .run(v1::ListPodSandboxRequest { filter }, async |r| {
            client.list_pod_sandbox(r).await
        })
        .await?;
        Ok(response.items)
    }

    /// Updates the pod-level resources of a sandbox. Runtimes without support return Unimplemented.
    pub async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: Option<v1::LinuxContainerResources>,
        resources: Option<v1::LinuxContainerResources>,
    ) -> Result<(), CriError> {
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_owned(),
            overhead,
            resources,
        };
        let mut client = self.runtime_service();
        CriCall {
            server: &self.address,
            name: "UpdatePodSandboxResources",
            id,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.UpdatePodSandboxResources" of self.context, polylet.sandbox.id = id),
        }
        .run(request, async |r| {
            client.update_pod_sandbox_resources(r).await
        })
        .await
        .map(drop)
    }

    /// The URL at which the runtime forwards ports of a sandbox.
    pub async fn port_forward(&self, id: &str, ports: Vec<i32>) -> Result<String, CriError> {
        let request = v1::PortForwardRequest {
            pod_sandbox_id: id.to_owned(),
            port: ports,
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "PortForward",
            id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.PortForward", polylet.sandbox.id = id),
        }
        .run(request, async |r| client.port_forward(r).await)
        .await?;
        Ok(response.url)
    }
}
