//! The gRPC methods: the images as a state stream, and the reclaim call.

use futures::stream::BoxStream;
use polylet_watch::{Store, serve};
use polylet_wire::imagegc::v1::image_gc_service_server::ImageGcService;
use polylet_wire::imagegc::v1::{
    Image, ReclaimRequest, ReclaimResponse, WatchImagesRequest, WatchImagesResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::input::ReclaimCall;

/// The gRPC methods of `ImageGcService`.
#[derive(Clone)]
pub(crate) struct Server {
    store: Store<String, Image>,
    reclaim_calls: mpsc::Sender<ReclaimCall>,
}

impl Server {
    pub(crate) fn new(
        store: Store<String, Image>,
        reclaim_calls: mpsc::Sender<ReclaimCall>,
    ) -> Self {
        Self {
            store,
            reclaim_calls,
        }
    }
}

#[tonic::async_trait]
impl ImageGcService for Server {
    type WatchImagesStream = BoxStream<'static, Result<WatchImagesResponse, Status>>;

    async fn watch_images(
        &self,
        request: Request<WatchImagesRequest>,
    ) -> Result<Response<Self::WatchImagesStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        Ok(Response::new(serve(self.store.clone(), resume_after)))
    }

    async fn reclaim(
        &self,
        request: Request<ReclaimRequest>,
    ) -> Result<Response<ReclaimResponse>, Status> {
        let stopping = || Status::unavailable("image-gc is shutting down");
        let (response, receiver) = oneshot::channel();
        let call = ReclaimCall {
            request: request.into_inner(),
            response,
        };
        self.reclaim_calls
            .send(call)
            .await
            .map_err(|_| stopping())?;
        let result = receiver.await.map_err(|_| stopping())?;
        result.map(Response::new).map_err(Status::unavailable)
    }
}
