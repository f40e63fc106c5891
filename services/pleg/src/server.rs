use std::pin::Pin;

use futures::{Stream, StreamExt, future};
use polylet_kit::cause;
use polylet_model::PodUid;
use polylet_watch::{Store, serve};
use polylet_wire::pleg::v1::pleg_service_server::PlegService;
use polylet_wire::pleg::v1::{
    PodState, RefreshPodRequest, RefreshPodResponse, WatchPodStatesRequest, WatchPodStatesResponse,
    WatchRuntimeRequest, WatchRuntimeResponse,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::convert;
use crate::core::{PodIdentity, RecordChange};
use crate::input::Input;
use crate::manager::RefreshRequest;

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Has pods inspected.
#[derive(Clone)]
pub(crate) struct Refresher(pub(crate) mpsc::UnboundedSender<Input>);

impl Refresher {
    /// The state of a pod, at least as recent as this call; with changes, what they concern.
    pub(crate) async fn refresh(
        &self,
        pod: PodIdentity,
        force: bool,
        changes: Vec<RecordChange>,
    ) -> Result<RefreshPodResponse, Status> {
        let (response, receiver) = oneshot::channel();
        let request = RefreshRequest {
            pod,
            force,
            changes,
            cause: cause::from_current_span(),
            response,
        };
        let stopping = || Status::unavailable("pleg is shutting down");
        self.0
            .send(Input::Refresh(request))
            .map_err(|_| stopping())?;
        let result = receiver.await.map_err(|_| stopping())?;
        result.map_err(Status::unavailable)
    }
}

/// The gRPC methods of `PlegService`.
pub(crate) struct Server {
    store: Store<PodUid, PodState>,
    refresher: Refresher,
    runtime_status: watch::Receiver<WatchRuntimeResponse>,
}

impl Server {
    pub(crate) fn new(
        store: Store<PodUid, PodState>,
        refresher: Refresher,
        runtime_status: watch::Receiver<WatchRuntimeResponse>,
    ) -> Self {
        Self {
            store,
            refresher,
            runtime_status,
        }
    }
}

#[tonic::async_trait]
impl PlegService for Server {
    type WatchPodStatesStream = Responses<WatchPodStatesResponse>;
    type WatchRuntimeStream = Responses<WatchRuntimeResponse>;

    async fn watch_pod_states(
        &self,
        request: Request<WatchPodStatesRequest>,
    ) -> Result<Response<Self::WatchPodStatesStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        Ok(Response::new(serve(self.store.clone(), resume_after)))
    }

    async fn refresh_pod(
        &self,
        request: Request<RefreshPodRequest>,
    ) -> Result<Response<RefreshPodResponse>, Status> {
        let request = request.into_inner();
        if request.uid.is_empty() {
            return Err(Status::invalid_argument("uid is empty"));
        }
        let force = request.force;
        let (pod, changes) = convert::refresh_scope(request);
        let refreshed = self.refresher.refresh(pod, force, changes).await?;
        Ok(Response::new(refreshed))
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> Result<Response<Self::WatchRuntimeStream>, Status> {
        let statuses = WatchStream::new(self.runtime_status.clone());
        // The default one is that of a process that does not know it yet.
        let unknown = WatchRuntimeResponse::default();
        let known = statuses.filter(move |status| future::ready(*status != unknown));
        Ok(Response::new(Box::pin(known.map(Ok))))
    }
}
