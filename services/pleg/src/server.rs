use std::pin::Pin;

use futures::{Stream, StreamExt};
use polylet_kit::cause;
use polylet_watch::{Store, serve};
use polylet_wire::pleg::v1::pleg_service_server::PlegService;
use polylet_wire::pleg::v1::{
    PodState, RefreshPodRequest, RefreshPodResponse, WatchPodStatesRequest, WatchPodStatesResponse,
    WatchRuntimeRequest, WatchRuntimeResponse,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::run::Input;
use crate::teller::Refresh;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) struct Server {
    store: Store<String, PodState>,
    inputs: mpsc::UnboundedSender<Input>,
    runtime: watch::Receiver<WatchRuntimeResponse>,
}

impl Server {
    pub(crate) fn new(
        store: Store<String, PodState>,
        inputs: mpsc::UnboundedSender<Input>,
        runtime: watch::Receiver<WatchRuntimeResponse>,
    ) -> Self {
        Self {
            store,
            inputs,
            runtime,
        }
    }
}

#[tonic::async_trait]
impl PlegService for Server {
    type WatchPodStatesStream = Answers<WatchPodStatesResponse>;
    type WatchRuntimeStream = Answers<WatchRuntimeResponse>;

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
        let RefreshPodRequest { uid, anew } = request.into_inner();
        if uid.is_empty() {
            return Err(Status::invalid_argument("uid is empty"));
        }
        let (answer, answered) = oneshot::channel();
        let refresh = Refresh {
            uid,
            anew,
            cause: cause::of_current_span(),
            answer,
        };
        let stopping = || Status::unavailable("this service is stopping");
        self.inputs
            .send(Input::Refresh(refresh))
            .map_err(|_| stopping())?;
        let answer = answered.await.map_err(|_| stopping())?;
        answer.map(Response::new).map_err(Status::unavailable)
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> Result<Response<Self::WatchRuntimeStream>, Status> {
        let reports = WatchStream::new(self.runtime.clone());
        Ok(Response::new(Box::pin(reports.map(Ok))))
    }
}
