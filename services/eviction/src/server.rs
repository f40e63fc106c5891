//! The gRPC methods: node conditions and evictions as a state stream, and the stats summary.

use futures::stream::BoxStream;
use polylet_watch::{PressureItemKey, Store, serve};
use polylet_wire::eviction::v1::eviction_service_server::EvictionService;
use polylet_wire::eviction::v1::{Pressure, WatchPressureRequest, WatchPressureResponse};
use polylet_wire::stats::v1::stats_service_server::StatsService;
use polylet_wire::stats::v1::{GetSummaryRequest, GetSummaryResponse};
use polylet_wire::time;
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::usage::SummaryError;
use crate::usage::SummaryRequest;

/// The gRPC methods of `EvictionService` and `StatsService`.
#[derive(Clone)]
pub(crate) struct Server {
    store: Store<PressureItemKey, Pressure>,
    summary_requests: mpsc::Sender<SummaryRequest>,
}

impl Server {
    pub(crate) fn new(
        store: Store<PressureItemKey, Pressure>,
        summary_requests: mpsc::Sender<SummaryRequest>,
    ) -> Self {
        Self {
            store,
            summary_requests,
        }
    }
}

#[tonic::async_trait]
impl EvictionService for Server {
    type WatchPressureStream = BoxStream<'static, Result<WatchPressureResponse, Status>>;

    async fn watch_pressure(
        &self,
        request: Request<WatchPressureRequest>,
    ) -> Result<Response<Self::WatchPressureStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        Ok(Response::new(serve(self.store.clone(), resume_after)))
    }
}

#[tonic::async_trait]
impl StatsService for Server {
    async fn get_summary(
        &self,
        request: Request<GetSummaryRequest>,
    ) -> Result<Response<GetSummaryResponse>, Status> {
        let stopping = || Status::unavailable("eviction is shutting down");
        let request = request.into_inner();
        let (response, receiver) = oneshot::channel();
        let request = SummaryRequest {
            not_older_than: time::from_wire_opt(request.not_older_than.as_ref()),
            only_cpu_and_memory: request.only_cpu_and_memory,
            response,
        };
        self.summary_requests
            .send(request)
            .await
            .map_err(|_| stopping())?;
        let summary = receiver.await.map_err(|_| stopping())?;
        let (at, summary) = summary.map_err(|error| match error {
            SummaryError::Deadline => Status::deadline_exceeded(error.to_string()),
            error => Status::unavailable(error.to_string()),
        })?;
        let summary = serde_json::to_vec(&summary)
            .map_err(|error| Status::internal(format!("failed to encode the summary: {error}")))?;
        Ok(Response::new(GetSummaryResponse {
            sampled_at: Some(time::to_wire(at)),
            summary: summary.into(),
        }))
    }
}
