//! The gRPC side: statuses as a state stream and as a list.

use std::time::Duration;

use futures::stream::BoxStream;
use polylet_watch::{Store, serve};
use polylet_wire::status::v1::status_service_server::StatusService;
use polylet_wire::status::v1::{
    ListPodStatusesRequest, ListPodStatusesResponse, PodStatus, WatchPodStatusesRequest,
    WatchPodStatusesResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// The statuses that are served.
pub(crate) type Statuses = Store<String, PodStatus>;

/// How long a list waits for what has not been heard yet, at most.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    pub(crate) statuses: Statuses,
    /// What has not been heard yet; empty once everything has.
    pub(crate) unheard: watch::Receiver<Vec<String>>,
}

#[tonic::async_trait]
impl StatusService for Server {
    type WatchPodStatusesStream = BoxStream<'static, Result<WatchPodStatusesResponse, Status>>;

    async fn watch_pod_statuses(
        &self,
        request: Request<WatchPodStatusesRequest>,
    ) -> Result<Response<Self::WatchPodStatusesStream>, Status> {
        Ok(Response::new(serve(
            self.statuses.clone(),
            request.into_inner().resume_after,
        )))
    }

    /// A list is for people: when something stays unheard, it is answered with
    /// what is known, and refused only while nothing is.
    async fn list_pod_statuses(
        &self,
        request: Request<ListPodStatusesRequest>,
    ) -> Result<Response<ListPodStatusesResponse>, Status> {
        let mut unheard = self.unheard.clone();
        let whole = tokio::time::timeout(PATIENCE, unheard.wait_for(Vec::is_empty))
            .await
            .is_ok();
        let known = self.statuses.snapshot();
        if !whole && known.is_empty() {
            let missing = self.unheard.borrow().join("; ");
            return Err(Status::unavailable(format!(
                "no status yet, not heard so far: {missing}"
            )));
        }
        let uid = request.into_inner().pod_uid;
        let pods = known
            .into_values()
            .filter(|pod| uid.is_empty() || pod.r#ref.as_ref().is_some_and(|r| r.uid == uid));
        Ok(Response::new(ListPodStatusesResponse {
            pods: pods.collect(),
        }))
    }
}
