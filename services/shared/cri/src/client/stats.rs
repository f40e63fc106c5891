use polylet_wire::runtime::v1;

use super::{CriCall, RuntimeClient, call_span};
use crate::CriError;

impl RuntimeClient {
    /// The resource usage of a container.
    pub async fn container_stats(&self, id: &str) -> Result<Option<v1::ContainerStats>, CriError> {
        let request = v1::ContainerStatsRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ContainerStats",
            id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ContainerStats", container.id = id),
        }
        .run(request, async |r| client.container_stats(r).await)
        .await?;
        Ok(response.stats)
    }

    /// The resource usage of the containers that match `filter`.
    pub async fn list_container_stats(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListContainerStats",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListContainerStats"),
        }
        .run(v1::ListContainerStatsRequest { filter }, async |r| {
            client.list_container_stats(r).await
        })
        .await?;
        Ok(response.stats)
    }

    /// The resource usage of a sandbox and its containers.
    pub async fn pod_sandbox_stats(
        &self,
        id: &str,
    ) -> Result<Option<v1::PodSandboxStats>, CriError> {
        let request = v1::PodSandboxStatsRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "PodSandboxStats",
            id,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.PodSandboxStats", polylet.sandbox.id = id),
        }
        .run(request, async |r| client.pod_sandbox_stats(r).await)
        .await?;
        Ok(response.stats)
    }

    /// The resource usage of the sandboxes that match `filter`.
    pub async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListPodSandboxStats",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandboxStats"),
        }
        .run(v1::ListPodSandboxStatsRequest { filter }, async |r| {
            client.list_pod_sandbox_stats(r).await
        })
        .await?;
        Ok(response.stats)
    }

    /// The descriptors of the metrics of [`Self::list_pod_sandbox_metrics`].
    pub async fn list_metric_descriptors(&self) -> Result<Vec<v1::MetricDescriptor>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListMetricDescriptors",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListMetricDescriptors"),
        }
        .run(v1::ListMetricDescriptorsRequest {}, async |r| {
            client.list_metric_descriptors(r).await
        })
        .await?;
        Ok(response.descriptors)
    }

    /// The runtime's metrics of all sandboxes.
    pub async fn list_pod_sandbox_metrics(&self) -> Result<Vec<v1::PodSandboxMetrics>, CriError> {
        let mut client = self.runtime_service();
        let response = CriCall {
            server: &self.address,
            name: "ListPodSandboxMetrics",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandboxMetrics"),
        }
        .run(v1::ListPodSandboxMetricsRequest {}, async |r| {
            client.list_pod_sandbox_metrics(r).await
        })
        .await?;
        Ok(response.pod_metrics)
    }
}
