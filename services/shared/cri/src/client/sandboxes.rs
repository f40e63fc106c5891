use polylet_wire::runtime::v1;

use super::{Call, Runtime, call_span, gone_is_done};
use crate::CriError;

impl Runtime {
    /// Makes and starts a pod's sandbox and its network; its id.
    pub async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CriError> {
        let pod = config.metadata.clone().unwrap_or_default();
        let span = call_span!(changes "cri.RunPodSandbox", k8s.pod.uid = %pod.uid,
            k8s.pod.name = %pod.name, k8s.namespace.name = %pod.namespace,
            attempt = pod.attempt, sandbox.id = tracing::field::Empty);
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: runtime_handler.to_owned(),
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "RunPodSandbox",
            id: &pod.name,
            // Networks are slow to set up: twice the usual, as upstream.
            limit: Some(self.timeout * 2),
            span: span.clone(),
        }
        .run(request, async |r| client.run_pod_sandbox(r).await)
        .await?;
        span.record("sandbox.id", &answer.pod_sandbox_id);
        Ok(answer.pod_sandbox_id)
    }

    /// Stops what runs in a sandbox and gives its network back; one that is gone is fine.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = Call {
            name: "StopPodSandbox",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.StopPodSandbox" of self.about, sandbox.id = id),
        }
        .run(request, async |r| client.stop_pod_sandbox(r).await)
        .await;
        gone_is_done(result.map(drop))
    }

    /// Takes a sandbox's record away; one that is gone is fine.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let result = Call {
            name: "RemovePodSandbox",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.RemovePodSandbox" of self.about, sandbox.id = id),
        }
        .run(request, async |r| client.remove_pod_sandbox(r).await)
        .await;
        gone_is_done(result.map(drop))
    }

    /// All that is known of one sandbox.
    pub async fn pod_sandbox_status(
        &self,
        id: &str,
    ) -> Result<v1::PodSandboxStatusResponse, CriError> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let mut client = self.runtime_service();
        Call {
            name: "PodSandboxStatus",
            id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.PodSandboxStatus", sandbox.id = id),
        }
        .run(request, async |r| client.pod_sandbox_status(r).await)
        .await
    }

    /// The sandboxes that fit `filter`, all of them without one.
    pub async fn list_pod_sandboxes(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListPodSandbox",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandbox"),
        }
        .run(v1::ListPodSandboxRequest { filter }, async |r| {
            client.list_pod_sandbox(r).await
        })
        .await?;
        Ok(answer.items)
    }

    /// Tells the runtime of new pod-level sizes; runtimes that cannot say Unimplemented.
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
        Call {
            name: "UpdatePodSandboxResources",
            id,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.UpdatePodSandboxResources" of self.about, sandbox.id = id),
        }
        .run(request, async |r| {
            client.update_pod_sandbox_resources(r).await
        })
        .await
        .map(drop)
    }

    /// The address at which the runtime forwards ports of a sandbox.
    pub async fn port_forward(&self, id: &str, ports: Vec<i32>) -> Result<String, CriError> {
        let request = v1::PortForwardRequest {
            pod_sandbox_id: id.to_owned(),
            port: ports,
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "PortForward",
            id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.PortForward", sandbox.id = id),
        }
        .run(request, async |r| client.port_forward(r).await)
        .await?;
        Ok(answer.url)
    }
}
