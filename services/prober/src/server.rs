//! The gRPC methods: results as a state stream, and counts of attempts.

use futures::stream::BoxStream;
use polylet_watch::serve;
use polylet_wire::prober::v1::prober_service_server::ProberService;
use polylet_wire::prober::v1::{
    ListProbeCountsRequest, ListProbeCountsResponse, WatchProbeStatusesRequest,
    WatchProbeStatusesResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::publisher::ProbeStatusStore;

/// The gRPC methods of `ProberService`.
pub(crate) struct Server {
    pub(crate) store: ProbeStatusStore,
    /// Requests for the counts, answered by the event loop.
    pub(crate) counts_requests: mpsc::Sender<oneshot::Sender<ListProbeCountsResponse>>,
}

#[tonic::async_trait]
impl ProberService for Server {
    type WatchProbeStatusesStream = BoxStream<'static, Result<WatchProbeStatusesResponse, Status>>;

    async fn watch_probe_statuses(
        &self,
        request: Request<WatchProbeStatusesRequest>,
    ) -> Result<Response<Self::WatchProbeStatusesStream>, Status> {
        Ok(Response::new(serve(
            self.store.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn list_probe_counts(
        &self,
        _: Request<ListProbeCountsRequest>,
    ) -> Result<Response<ListProbeCountsResponse>, Status> {
        let stopping = || Status::unavailable("prober is shutting down");
        let (response, receiver) = oneshot::channel();
        self.counts_requests
            .send(response)
            .await
            .map_err(|_| stopping())?;
        Ok(Response::new(receiver.await.map_err(|_| stopping())?))
    }
}
