use polylet_wire::runtime::v1;

use super::{Call, Runtime, call_span};
use crate::CriError;

impl Runtime {
    /// Usage of one container.
    pub async fn container_stats(&self, id: &str) -> Result<Option<v1::ContainerStats>, CriError> {
        let request = v1::ContainerStatsRequest {
            container_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ContainerStats",
            id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ContainerStats", container.id = id),
        }
        .run(request, async |r| client.container_stats(r).await)
        .await?;
        Ok(answer.stats)
    }

    /// Usage of the containers that fit `filter`, of all without one.
    pub async fn list_container_stats(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListContainerStats",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListContainerStats"),
        }
        .run(v1::ListContainerStatsRequest { filter }, async |r| {
            client.list_container_stats(r).await
        })
        .await?;
        Ok(answer.stats)
    }

    /// Usage of one sandbox with its containers.
    pub async fn pod_sandbox_stats(
        &self,
        id: &str,
    ) -> Result<Option<v1::PodSandboxStats>, CriError> {
        let request = v1::PodSandboxStatsRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let mut client = self.runtime_service();
        let answer = Call {
            name: "PodSandboxStats",
            id,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.PodSandboxStats", sandbox.id = id),
        }
        .run(request, async |r| client.pod_sandbox_stats(r).await)
        .await?;
        Ok(answer.stats)
    }

    /// Usage of the sandboxes that fit `filter`, of all without one.
    pub async fn list_pod_sandbox_stats(
        &self,
        filter: Option<v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListPodSandboxStats",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandboxStats"),
        }
        .run(v1::ListPodSandboxStatsRequest { filter }, async |r| {
            client.list_pod_sandbox_stats(r).await
        })
        .await?;
        Ok(answer.stats)
    }

    /// The metrics that [`Self::list_pod_sandbox_metrics`] gives.
    pub async fn list_metric_descriptors(&self) -> Result<Vec<v1::MetricDescriptor>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListMetricDescriptors",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListMetricDescriptors"),
        }
        .run(v1::ListMetricDescriptorsRequest {}, async |r| {
            client.list_metric_descriptors(r).await
        })
        .await?;
        Ok(answer.descriptors)
    }

    /// The runtime's own metrics of all sandboxes.
    pub async fn list_pod_sandbox_metrics(&self) -> Result<Vec<v1::PodSandboxMetrics>, CriError> {
        let mut client = self.runtime_service();
        let answer = Call {
            name: "ListPodSandboxMetrics",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListPodSandboxMetrics"),
        }
        .run(v1::ListPodSandboxMetricsRequest {}, async |r| {
            client.list_pod_sandbox_metrics(r).await
        })
        .await?;
        Ok(answer.pod_metrics)
    }
}
