//! What others may ask: the pressure stream and the usage summary.

use futures::stream::BoxStream;
use polylet_watch::{PressureKeyOwned, Store, serve};
use polylet_wire::eviction::v1::eviction_service_server::EvictionService;
use polylet_wire::eviction::v1::{Pressure, WatchPressureRequest, WatchPressureResponse};
use polylet_wire::stats::v1::stats_service_server::StatsService;
use polylet_wire::stats::v1::{GetSummaryRequest, GetSummaryResponse};
use polylet_wire::time;
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::run::Question;

/// Serves both packages.
#[derive(Clone)]
pub(crate) struct Server {
    store: Store<PressureKeyOwned, Pressure>,
    questions: mpsc::Sender<Question>,
}

impl Server {
    pub(crate) fn new(
        store: Store<PressureKeyOwned, Pressure>,
        questions: mpsc::Sender<Question>,
    ) -> Self {
        Self { store, questions }
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
        let request = request.into_inner();
        let (answer, answered) = oneshot::channel();
        let question = Question {
            not_older_than: time::from_wire_opt(request.not_older_than.as_ref()),
            only_cpu_and_memory: request.only_cpu_and_memory,
            answer,
        };
        self.questions
            .send(question)
            .await
            .map_err(|_| Status::unavailable("eviction is stopping"))?;
        let (at, summary) = answered
            .await
            .map_err(|_| Status::unavailable("the sample was given up"))?;
        let summary = serde_json::to_vec(&summary)
            .map_err(|error| Status::internal(format!("cannot write the summary: {error}")))?;
        Ok(Response::new(GetSummaryResponse {
            sampled_at: Some(time::to_wire(at)),
            summary: summary.into(),
        }))
    }
}
