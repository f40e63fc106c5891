//! What the peers say, asked for once per request.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use polylet_kit::{Channel, Ctx, LARGEST_MESSAGE};
use polylet_watch::{Change, WatchWire};
use polylet_wire::pleg::v1::pleg_service_client::PlegServiceClient;
use polylet_wire::pleg::v1::{PodState, WatchPodStatesRequest};
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::prober::v1::{ListProbeCountsRequest, ListProbeCountsResponse};
use polylet_wire::stats::v1::GetSummaryRequest;
use polylet_wire::stats::v1::stats_service_client::StatsServiceClient;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus, WatchPodStatusesRequest};
use tokio::time::timeout;
use tonic::{Request, Status};

/// How long a snapshot of a stream may take.
const SNAPSHOT: Duration = Duration::from_secs(10);

/// How long a list of all pods may take: with their manifests it may be more than a hundred
/// megabytes.
const LISTED: Duration = Duration::from_secs(60);

/// The peers of the node API.
#[derive(Clone)]
pub(crate) struct Peers {
    status: Channel,
    pleg: Channel,
    eviction: Channel,
    prober: Channel,
}

impl Peers {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self {
            // Snapshots of streams, for a request each.
            status: ctx.peer("status-reporter").in_passing(),
            pleg: ctx.peer("pleg").in_passing(),
            eviction: ctx.peer("eviction").channel(),
            prober: ctx.peer("prober").channel(),
        }
    }

    /// All pods with their statuses.
    pub(crate) async fn pods(&self) -> Result<Vec<PodStatus>, Status> {
        let mut client = StatusServiceClient::new(self.status.clone())
            .max_decoding_message_size(LARGEST_MESSAGE);
        let mut request = Request::new(ListPodStatusesRequest::default());
        request.set_timeout(LISTED);
        let answer = client.list_pod_statuses(request).await?;
        Ok(answer.into_inner().pods)
    }

    /// Resolves when the container is no longer the running one of its pod, or its pod is gone.
    pub(crate) async fn until_ended(self, uid: String, container_id: String) {
        loop {
            let mut client = StatusServiceClient::new(self.status.clone())
                .max_decoding_message_size(LARGEST_MESSAGE);
            let request = WatchPodStatusesRequest::default();
            if let Ok(stream) = client.watch_pod_statuses(request).await {
                let mut stream = stream.into_inner();
                let mut seen = false;
                while let Ok(Some(message)) = stream.message().await {
                    match message.unwrap() {
                        Some(Change::Upsert(pod))
                            if pod.r#ref.as_ref().is_some_and(|r| r.uid == uid) =>
                        {
                            seen = true;
                            if !runs(&pod, &container_id) {
                                return;
                            }
                        }
                        Some(Change::Remove(gone)) if gone == uid => return,
                        Some(Change::Synced(_)) if !seen => return,
                        _ => {}
                    }
                }
            }
            // The reporter is away: the follower keeps what it has until it is back.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What the runtime holds, as a snapshot.
    pub(crate) async fn states(&self) -> Result<Vec<PodState>, Status> {
        let mut client =
            PlegServiceClient::new(self.pleg.clone()).max_decoding_message_size(LARGEST_MESSAGE);
        let read = async {
            let mut stream = client
                .watch_pod_states(WatchPodStatesRequest::default())
                .await?
                .into_inner();
            let mut states = Vec::new();
            while let Some(message) = stream.message().await? {
                match message.unwrap() {
                    Some(Change::Upsert(state)) => states.push(state),
                    Some(Change::Synced(_)) => return Ok(states),
                    _ => {}
                }
            }
            Err(Status::unavailable("pleg ended the stream"))
        };
        timeout(SNAPSHOT, read).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(
                "pleg has not listed the runtime yet",
            ))
        })
    }

    /// How often containers were probed.
    pub(crate) async fn probe_counts(&self) -> Result<ListProbeCountsResponse, Status> {
        let mut client = ProberServiceClient::new(self.prober.clone())
            .max_decoding_message_size(LARGEST_MESSAGE);
        let answer = client.list_probe_counts(ListProbeCountsRequest {}).await?;
        Ok(answer.into_inner())
    }

    /// The usage summary as JSON, taken anew or not before some time.
    pub(crate) async fn summary(
        &self,
        only_cpu_and_memory: bool,
        not_older_than: Option<SystemTime>,
    ) -> Result<Bytes, Status> {
        let mut client = StatsServiceClient::new(self.eviction.clone())
            .max_decoding_message_size(LARGEST_MESSAGE);
        let request = GetSummaryRequest {
            not_older_than: not_older_than.map(Into::into),
            only_cpu_and_memory,
        };
        Ok(client.get_summary(request).await?.into_inner().summary)
    }
}

/// Whether the status says that this very container runs.
fn runs(pod: &PodStatus, container_id: &str) -> bool {
    let Ok(status) = serde_json::from_slice::<k8s_openapi::api::core::v1::PodStatus>(&pod.status)
    else {
        return false;
    };
    crate::http::logs::all_statuses(&status).any(|container| {
        let same = container
            .container_id
            .as_deref()
            .is_some_and(|id| id.ends_with(container_id));
        same && container
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
    })
}
