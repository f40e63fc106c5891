//! The gRPC side: verdicts as a state stream.

use futures::stream::BoxStream;
use polylet_watch::{Store, serve};
use polylet_wire::prober::v1::prober_service_server::ProberService;
use polylet_wire::prober::v1::{Verdict, WatchVerdictsRequest, WatchVerdictsResponse};
use tonic::{Request, Response, Status};

/// The verdicts that are served.
pub(crate) type Verdicts = Store<(String, String, i32), Verdict>;

pub(crate) struct Server {
    pub(crate) verdicts: Verdicts,
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
}
