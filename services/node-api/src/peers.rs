//! Clients of the peers, called once per HTTP request.

use std::time::Duration;

use polylet_kit::{Channel, Ctx, MAX_MESSAGE_SIZE};
use polylet_watch::{Change, WatchWire};
use polylet_wire::known::{self, Known};
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{GetInfoRequest, ListMetricsRequest, MetricFamily};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::{PodState, WatchPodStatesRequest};
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::prober::v1::{ListProbeCountsRequest, ListProbeCountsResponse};
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus, WatchPodStatusesRequest};
use tokio::time::timeout;
use tonic::{Request, Status};

use crate::peer_calls::{INFO_TIMEOUT, repeated};
use crate::service_channels::ServiceChannels;
use crate::stats_client::StatsClient;

/// Timeout of a snapshot of a stream.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);

/// The services without which pods are not synced, as status-reporter follows them.
const SYNCING: [&str; 2] = ["sync-coordinator", "pleg"];

/// Timeout of a list of pods: all of them with their manifests may exceed a hundred megabytes.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// The clients. Clones share their connections.
#[derive(Clone)]
pub(crate) struct PeerClients {
    status: Channel,
    pleg: Channel,
    prober: Channel,
    pub(crate) stats: StatsClient,
    /// All other services but the supervisor.
    pub(crate) services: ServiceChannels,
}

impl PeerClients {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self {
            // Snapshots of streams, which do not count as followed.
            status: ctx.peer("status-reporter").unwatched_channel(),
            pleg: ctx.peer("pleg").unwatched_channel(),
            prober: ctx.peer("prober").channel(),
            stats: StatsClient::new(ctx.peer("eviction").channel()),
            services: ServiceChannels::new(ctx),
        }
    }

    /// All pods with their statuses.
    pub(crate) async fn pods(&self) -> Result<Vec<PodStatus>, Status> {
        self.list_pods(ListPodStatusesRequest::default()).await
    }

    /// The pods of one full name: usually one, more while a former pod of the name terminates. Those that
    /// a source still has come first, and then the newest.
    pub(crate) async fn pods_named(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<PodStatus>, Status> {
        let request = ListPodStatusesRequest {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ListPodStatusesRequest::default()
        };
        self.list_pods(request).await
    }

    async fn list_pods(&self, request: ListPodStatusesRequest) -> Result<Vec<PodStatus>, Status> {
        repeated(|| {
            let mut client = StatusServiceClient::new(self.status.clone())
                .max_decoding_message_size(MAX_MESSAGE_SIZE);
            let mut request = Request::new(request.clone());
            request.set_timeout(LIST_TIMEOUT);
            async move { Ok(client.list_pod_statuses(request).await?.into_inner().pods) }
        })
        .await
    }

    /// Whether status-reporter responds, and is in step with the services that sync pods.
    pub(crate) async fn in_step(&self) -> bool {
        let mut client = LifecycleServiceClient::new(self.status.clone());
        let mut request = Request::new(GetInfoRequest {});
        request.set_timeout(INFO_TIMEOUT);
        let Ok(info) = client.get_info(request).await else {
            return false;
        };
        let peers = info.into_inner().peers;
        SYNCING.iter().all(|service| {
            let mut found = peers.iter().filter(|peer| peer.service == *service);
            found.all(|peer| peer.synced)
        })
    }

    /// Resolves once the container is no longer the running one of its pod, or the pod is gone.
    pub(crate) async fn until_ended(self, uid: String, container_id: String) {
        loop {
            let mut client = StatusServiceClient::new(self.status.clone())
                .max_decoding_message_size(MAX_MESSAGE_SIZE);
            let request = WatchPodStatusesRequest {
                pod_uid: uid.clone(),
                ..WatchPodStatusesRequest::default()
            };
            if let Ok(stream) = client.watch_pod_statuses(request).await {
                let mut stream = stream.into_inner();
                let mut seen = false;
                while let Ok(Some(message)) = stream.message().await {
                    // An end that was not reported is not one.
                    seen |= message.unknown().is_some();
                    match message.into_change() {
                        Some(Change::Upsert(pod))
                            if pod.r#ref.as_ref().is_some_and(|r| r.uid == uid) =>
                        {
                            seen = true;
                            if !is_running(&pod, &container_id) {
                                return;
                            }
                        }
                        Some(Change::Remove(gone)) if gone == *uid => return,
                        Some(Change::Synced(_)) if !seen => return,
                        _ => {}
                    }
                }
            }
            // status-reporter is unavailable: the log is followed until it is back.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// A snapshot of sandboxes and containers in the runtime.
    pub(crate) async fn runtime_states(&self) -> Result<Vec<PodState>, Status> {
        let read = repeated(|| {
            let mut client = PlegServiceClient::new(self.pleg.clone())
                .max_decoding_message_size(MAX_MESSAGE_SIZE);
            async move {
                let mut stream = client
                    .watch_pod_states(WatchPodStatesRequest::default())
                    .await?
                    .into_inner();
                let mut states = Vec::new();
                while let Some(message) = stream.message().await? {
                    if let Some(field) = message.unknown() {
                        return Err(Status::unavailable(known::message(field)));
                    }
                    match message.into_change() {
                        Some(Change::Upsert(state)) => states.push(state),
                        Some(Change::Synced(_)) => return Ok(states),
                        _ => {}
                    }
                }
                Err(Status::unavailable("pleg ended the stream"))
            }
        });
        timeout(SNAPSHOT_TIMEOUT, read).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(
                "pleg has not synced within the timeout",
            ))
        })
    }

    /// Counts of probes.
    pub(crate) async fn probe_counts(&self) -> Result<ListProbeCountsResponse, Status> {
        repeated(|| {
            let mut client = ProberServiceClient::new(self.prober.clone())
                .max_decoding_message_size(MAX_MESSAGE_SIZE);
            async move {
                let response = client.list_probe_counts(ListProbeCountsRequest {}).await?;
                Ok(response.into_inner())
            }
        })
        .await
    }

    /// What the services have counted, this one among them. One that is unavailable, or too old to be asked, adds nothing.
    pub(crate) async fn metrics(&self) -> Vec<MetricFamily> {
        let calls = self.services.iter().map(|(_, channel)| async {
            let mut client = LifecycleServiceClient::new(channel.clone());
            let mut request = Request::new(ListMetricsRequest {});
            request.set_timeout(INFO_TIMEOUT);
            let answer = client.list_metrics(request).await;
            answer.map(|answer| answer.into_inner().families)
        });
        let answers = futures::future::join_all(calls).await;
        let all = answers.into_iter().flatten().flatten();
        all.chain(polylet_kit::metrics::families()).collect()
    }
}

/// Whether this container is running according to the status.
fn is_running(pod: &PodStatus, container_id: &str) -> bool {
    let Ok(status) = serde_json::from_slice::<k8s_openapi::api::core::v1::PodStatus>(&pod.status)
    else {
        return false;
    };
    crate::core::pods::container_statuses(&status).any(|container| {
        let is_container = container
            .container_id
            .as_deref()
            .is_some_and(|id| id.ends_with(container_id));
        is_container
            && container
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
    })
}
