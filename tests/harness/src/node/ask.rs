use std::path::PathBuf;

use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{ListManifestErrorsRequest, ManifestError};
use polylet_wire::status::v1::ListPodStatusesRequest;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use polylet_wire::supervisor::v1::{GetTraceRequest, GetTraceResponse, ListServicesRequest};
use tonic::transport::Channel;

use super::Node;
use crate::containerd;
use crate::cri::{channel, told, within};
use crate::error::{HarnessError, report};
use crate::view::{PodView, SupervisedService};
use crate::wait::{Poll, until};

/// All services started by `polylet run`, in no order.
pub const SERVICES: [&str; 10] = [
    "pod-config",
    "device-manager",
    "pleg",
    "prober",
    "volume-manager",
    "eviction",
    "image-gc",
    "sync-coordinator",
    "status-reporter",
    "node-api",
];

impl Node {
    /// The services as reported by the supervisor.
    ///
    /// # Errors
    /// Fails if the supervisor does not respond.
    pub async fn services(&self) -> Result<Vec<SupervisedService>, HarnessError> {
        let mut client = SupervisorServiceClient::new(self.channel("supervisor")?);
        let answer = client
            .list_services(within(10, ListServicesRequest::default()))
            .await;
        let services = told("ListServices", answer)?.services;
        Ok(services
            .into_iter()
            .map(SupervisedService::from_wire)
            .collect())
    }

    /// All pods with their statuses.
    ///
    /// # Errors
    /// Fails if the status reporter does not respond.
    pub async fn pods(&self) -> Result<Vec<PodView>, HarnessError> {
        let channel = self.channel("status-reporter")?;
        let mut client = StatusServiceClient::new(channel).max_decoding_message_size(1 << 30);
        let answer = client
            .list_pod_statuses(within(60, ListPodStatusesRequest::default()))
            .await;
        told("ListPodStatuses", answer)?
            .pods
            .iter()
            .map(PodView::from_wire)
            .collect()
    }

    /// The rejected manifests and pods of the node's sources.
    ///
    /// # Errors
    /// Fails if pod-config does not respond.
    pub async fn problems(&self) -> Result<Vec<ManifestError>, HarnessError> {
        let mut client = PodConfigServiceClient::new(self.channel("pod-config")?);
        let answer = client
            .list_manifest_errors(within(10, ListManifestErrorsRequest::default()))
            .await;
        Ok(told("ListManifestErrors", answer)?.errors)
    }

    /// The trace of a pod's startup.
    ///
    /// # Errors
    /// Fails if there is none or the supervisor does not respond.
    pub async fn trace(&self, query: &str) -> Result<GetTraceResponse, HarnessError> {
        let mut client = SupervisorServiceClient::new(self.channel("supervisor")?);
        let request = within(
            10,
            GetTraceRequest {
                query: query.to_owned(),
            },
        );
        told("GetTrace", client.get_trace(request).await)
    }

    /// Waits until a pod satisfies a condition. `name` is the name in the manifest; the node's name
    /// is appended for static pods.
    ///
    /// # Errors
    /// Fails on timeout with the last observation.
    pub async fn wait_pod(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&PodView) -> bool,
    ) -> Result<PodView, HarnessError> {
        let full = format!("{name}-{}", self.name());
        until(format!("pod {name} {what}"), || async {
            match self.pods().await {
                Ok(pods) => match pods.into_iter().find(|pod| pod.name == full) {
                    Some(pod) if wanted(&pod) => Poll::Ready(pod),
                    Some(pod) => Poll::Pending(pod.line()),
                    None => Poll::Pending(format!("no pod {full}")),
                },
                Err(error) => Poll::Pending(report(&error)),
            }
        })
        .await
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    /// See [`Node::wait_pod`].
    pub async fn wait_ready(&self, name: &str) -> Result<PodView, HarnessError> {
        self.wait_pod(name, "to be Ready", PodView::is_ready).await
    }

    /// Waits until a pod has no status and no sandbox.
    ///
    /// # Errors
    /// Fails on timeout.
    pub async fn wait_gone(&self, name: &str) -> Result<(), HarnessError> {
        let full = format!("{name}-{}", self.name());
        until(format!("pod {name} to be removed"), || async {
            let look = async {
                let pods = self.pods().await?;
                if let Some(pod) = pods.iter().find(|pod| pod.name == full) {
                    return Ok(Some(pod.line()));
                }
                let sandboxes = self.containerd.cri().sandboxes().await?;
                let held = sandboxes.iter().any(|sandbox| {
                    sandbox
                        .metadata
                        .as_ref()
                        .is_some_and(|metadata| metadata.name == full)
                });
                Ok::<_, HarnessError>(held.then(|| "the runtime still has its sandbox".to_owned()))
            };
            match look.await {
                Ok(None) => Poll::Ready(()),
                Ok(Some(last)) => Poll::Pending(last),
                Err(error) => Poll::Pending(report(&error)),
            }
        })
        .await
    }

    /// Waits until every service is serving.
    ///
    /// # Errors
    /// Fails if `polylet run` exits, or on timeout.
    pub async fn wait_serving(&mut self) -> Result<(), HarnessError> {
        self.wait_services("every service to serve", |service| {
            service.health == "SERVING"
        })
        .await
    }

    /// Waits until every service is serving and has synced with all its peers.
    ///
    /// # Errors
    /// See [`Node::wait_serving`].
    pub async fn wait_in_step(&mut self) -> Result<(), HarnessError> {
        self.wait_services(
            "every service to have synced",
            SupervisedService::has_synced,
        )
        .await
    }

    async fn wait_services(
        &mut self,
        what: &str,
        wanted: impl Fn(&SupervisedService) -> bool,
    ) -> Result<(), HarnessError> {
        let mut child = self.child.take();
        let mut ended = None;
        let this = &*self;
        let wanted = &wanted;
        let looked = until(what, || {
            ended = child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            let gone = ended.is_some();
            async move {
                if gone {
                    return Poll::Ready(());
                }
                match this.services().await {
                    Ok(services) => missing(&services, wanted),
                    Err(error) => Poll::Pending(report(&error)),
                }
            }
        })
        .await;
        self.child = child;
        let Some(status) = ended else { return looked };
        self.child = None;
        let log = containerd::tail(&self.log(), 20);
        Err(HarnessError::ExitedEarly {
            program: "polylet run",
            status: status.to_string(),
            log,
        })
    }

    /// A channel to a service's socket.
    ///
    /// # Errors
    /// Fails if the path is not valid for a socket.
    pub fn channel(&self, service: &str) -> Result<Channel, HarnessError> {
        channel(&self.socket(service))
    }

    /// Path of a service's socket.
    pub fn socket(&self, service: &str) -> PathBuf {
        self.dirs().run.join(format!("{service}.sock"))
    }
}

fn missing(
    services: &[SupervisedService],
    wanted: impl Fn(&SupervisedService) -> bool,
) -> Poll<()> {
    let is_well = |name: &&str| {
        services
            .iter()
            .any(|found| found.name == **name && wanted(found))
    };
    let waiting: Vec<String> = SERVICES
        .iter()
        .filter(|name| !is_well(name))
        .map(
            |name| match services.iter().find(|found| found.name == **name) {
                Some(found) => format!("{name} {} {}", found.health, found.behind.join(" ")),
                None => format!("{name} is not listed"),
            },
        )
        .collect();
    if waiting.is_empty() {
        Poll::Ready(())
    } else {
        Poll::Pending(waiting.join("; "))
    }
}
