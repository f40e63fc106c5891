//! What others may ask: room, and the images there are.

use futures::stream::BoxStream;
use polylet_watch::{Store, serve};
use polylet_wire::imagegc::v1::image_gc_service_server::ImageGcService;
use polylet_wire::imagegc::v1::{
    Image, ReclaimRequest, ReclaimResponse, WatchImagesRequest, WatchImagesResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::run::Question;

/// Serves the package.
#[derive(Clone)]
pub(crate) struct Server {
    store: Store<String, Image>,
    questions: mpsc::Sender<Question>,
}

impl Server {
    pub(crate) fn new(store: Store<String, Image>, questions: mpsc::Sender<Question>) -> Self {
        Self { store, questions }
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
        let (answer, answered) = oneshot::channel();
        let question = Question {
            request: request.into_inner(),
            answer,
        };
        self.questions
            .send(question)
            .await
            .map_err(|_| Status::unavailable("image-gc is stopping"))?;
        let result = answered
            .await
            .map_err(|_| Status::unavailable("image-gc gave up"))?;
        result.map(Response::new).map_err(Status::unavailable)
    }
}
