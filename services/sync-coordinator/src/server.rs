//! Server of `polylet.sync.v1`.

use futures::stream::BoxStream;
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::sync::v1::sync_service_server::SyncService;
use polylet_wire::sync::v1::{PodSync, WatchPodSyncRequest, WatchPodSyncResponse};
use tonic::{Request, Response, Status};

/// Serves the sync status of all pods.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) store: Store<PodUid, PodSync>,
}

#[tonic::async_trait]
impl SyncService for Server {
    type WatchPodSyncStream = BoxStream<'static, Result<WatchPodSyncResponse, Status>>;

    async fn watch_pod_sync(
        &self,
        request: Request<WatchPodSyncRequest>,
    ) -> Result<Response<Self::WatchPodSyncStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        Ok(Response::new(polylet_watch::serve(
            self.store.clone(),
            resume_after,
        )))
    }
}
