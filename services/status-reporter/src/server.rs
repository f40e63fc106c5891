//! The gRPC service: statuses as a state stream and as a list.

use std::time::Duration;

use futures::stream::BoxStream;
use polylet_watch::serve;
use polylet_wire::status::v1::status_service_server::StatusService;
use polylet_wire::status::v1::{
    ListPodStatusesRequest, ListPodStatusesResponse, WatchPodStatusesRequest,
    WatchPodStatusesResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::status_store::StatusStore;

/// How long a list waits for the initial sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    pub(crate) statuses: StatusStore,
    /// Streams that have not synced; empty after the initial sync.
    pub(crate) unsynced: watch::Receiver<Vec<String>>,
}

#[tonic::async_trait]
impl StatusService for Server {
    type WatchPodStatusesStream = BoxStream<'static, Result<WatchPodStatusesResponse, Status>>;

    async fn watch_pod_statuses(
        &self,
        request: Request<WatchPodStatusesRequest>,
    ) -> Result<Response<Self::WatchPodStatusesStream>, Status> {
        let store = self.statuses.watched();
        let resume_after = request.into_inner().resume_after;
        Ok(Response::new(serve(store, resume_after)))
    }

    /// Lists what is known even if some streams do not sync in time: the list is for display. It
    /// fails only while no status is known at all.
    async fn list_pod_statuses(
        &self,
        request: Request<ListPodStatusesRequest>,
    ) -> Result<Response<ListPodStatusesResponse>, Status> {
        let mut unsynced = self.unsynced.clone();
        let synced = tokio::time::timeout(SYNC_TIMEOUT, unsynced.wait_for(Vec::is_empty))
            .await
            .is_ok();
        if !synced && self.statuses.is_empty() {
            let missing = self.unsynced.borrow().join("; ");
            return Err(Status::unavailable(format!(
                "initial sync in progress, waiting for: {missing}"
            )));
        }
        let pods = self.statuses.list(&request.into_inner());
        Ok(Response::new(ListPodStatusesResponse { pods }))
    }
}
