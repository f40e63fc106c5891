//! The gRPC methods: node conditions and evictions as a state stream, and the stats summary.

use futures::stream::BoxStream;
use jiff::Timestamp;
use polylet_watch::{PressureItemKey, Store, serve};
use polylet_wire::eviction::v1::eviction_service_server::EvictionService;
use polylet_wire::eviction::v1::{Pressure, WatchPressureRequest, WatchPressureResponse};
use polylet_wire::stats::v1::stats_service_server::StatsService;
use polylet_wire::stats::v1::{
    ExpositionKind, GetExpositionRequest, GetExpositionResponse, GetSummaryRequest,
    GetSummaryResponse,
};
use polylet_wire::time;
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::usage::{SummaryError, SummaryRequest, TimedReport, UsageReport};

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

impl Server {
    async fn report(
        &self,
        report: UsageReport,
        not_older_than: Option<Timestamp>,
    ) -> Result<TimedReport, Status> {
        let stopping = || Status::unavailable("eviction is shutting down");
        let (response, receiver) = oneshot::channel();
        let request = SummaryRequest {
            report,
            not_older_than,
            response,
        };
        self.summary_requests
            .send(request)
            .await
            .map_err(|_| stopping())?;
        let report = receiver.await.map_err(|_| stopping())?;
        report.map_err(|error| match error {
            SummaryError::Deadline => Status::deadline_exceeded(error.to_string()),
            error => Status::unavailable(error.to_string()),
        })
    }
}

#[tonic::async_trait]
impl StatsService for Server {
    async fn get_summary(
        &self,
        request: Request<GetSummaryRequest>,
    ) -> Result<Response<GetSummaryResponse>, Status> {
        let request = request.into_inner();
        let report = match request.only_cpu_and_memory {
            true => UsageReport::CpuAndMemory,
            false => UsageReport::Summary,
        };
        let oldest = time::from_wire_opt(request.not_older_than.as_ref());
        let (at, summary) = self.report(report, oldest).await?;
        Ok(Response::new(GetSummaryResponse {
            sampled_at: Some(time::to_wire(at)),
            summary,
        }))
    }

    async fn get_exposition(
        &self,
        request: Request<GetExpositionRequest>,
    ) -> Result<Response<GetExpositionResponse>, Status> {
        let request = request.into_inner();
        let report = match request.kind() {
            ExpositionKind::Cadvisor => UsageReport::CadvisorMetrics,
            ExpositionKind::Resource => UsageReport::ResourceMetrics,
            ExpositionKind::Unspecified => {
                return Err(Status::invalid_argument("unknown kind of exposition"));
            }
        };
        let oldest = time::from_wire_opt(request.not_older_than.as_ref());
        let (at, text) = self.report(report, oldest).await?;
        Ok(Response::new(GetExpositionResponse {
            sampled_at: Some(time::to_wire(at)),
            text,
        }))
    }
}
