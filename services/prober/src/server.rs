//! The gRPC side: verdicts as a state stream, and counts of attempts.

use futures::stream::BoxStream;
use polylet_watch::{Store, serve};
use polylet_wire::prober::v1::prober_service_server::ProberService;
use polylet_wire::prober::v1::{
    ListProbeCountsRequest, ListProbeCountsResponse, Verdict, WatchVerdictsRequest,
    WatchVerdictsResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

/// The verdicts that are served.
pub(crate) type Verdicts = Store<(String, String, i32), Verdict>;

pub(crate) struct Server {
    pub(crate) verdicts: Verdicts,
    /// Those who want to know the counts.
    pub(crate) askers: mpsc::Sender<oneshot::Sender<ListProbeCountsResponse>>,
}

#[tonic::async_trait]
impl ProberService for Server {
    type WatchVerdictsStream = BoxStream<'static, Result<WatchVerdictsResponse, Status>>;

    async fn watch_verdicts(
        &self,
        request: Request<WatchVerdictsRequest>,
    ) -> Result<Response<Self::WatchVerdictsStream>, Status> {
        Ok(Response::new(serve(
            self.verdicts.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn list_probe_counts(
        &self,
        _: Request<ListProbeCountsRequest>,
    ) -> Result<Response<ListProbeCountsResponse>, Status> {
        let stopping = || Status::unavailable("this service is stopping");
        let (answer, answered) = oneshot::channel();
        self.askers.send(answer).await.map_err(|_| stopping())?;
        Ok(Response::new(answered.await.map_err(|_| stopping())?))
    }
}
