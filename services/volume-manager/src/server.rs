//! Serves `polylet.volume.v1`.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::report;
use polylet_watch::Store;
use polylet_wire::common::v1::{Cause, PodRef};
use polylet_wire::volume::v1::volume_service_server::VolumeService;
use polylet_wire::volume::v1::{
    ApplyPodRequest, ApplyPodResponse, CompleteDesiredRequest, CompleteDesiredResponse,
    GetVolumeStatsRequest, GetVolumeStatsResponse, PodVolumes, PrepareSubPathsRequest,
    PrepareSubPathsResponse, ReleasePodRequest, ReleasePodResponse, WatchClaimSizesRequest,
    WatchClaimSizesResponse, WatchDriversRequest, WatchDriversResponse, WatchPodVolumesRequest,
    WatchPodVolumesResponse, WatchVolumesInUseRequest, WatchVolumesInUseResponse,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::WatchStream;
use tonic::{Code, Request, Response, Status};

use crate::convert::{self, CsiTold};
use crate::core::declare::Refusal;
use crate::core::layout::Layout;
use crate::core::manifest;
use crate::core::spec::{Allocatable, PodName};
use crate::csi::stats;
use crate::run::{From, Input, PartsWanted};

/// The server: hands calls to the one task, and streams what it tells.
pub struct Server {
    /// Where calls go.
    pub inputs: mpsc::Sender<Input>,
    /// What is told.
    pub store: Store<String, PodVolumes>,
    /// What is told of drivers and their volumes.
    pub csi: CsiTold,
    /// Where things are.
    pub layout: Layout,
    /// What the node can give, for pods that read it.
    pub node: Allocatable,
}

fn named(pod: Option<PodRef>) -> Result<PodName, Status> {
    let wrong =
        "ref.uid must be 1 to 128 of letters, digits, '-', '_' and '.', not starting with '.'";
    convert::pod(pod).ok_or_else(|| Status::invalid_argument(wrong))
}

fn declared(declarer: String, sequence: u64, cause: Option<Cause>) -> Result<From, Status> {
    if declarer.is_empty() {
        return Err(Status::invalid_argument(
            "declarer must be the caller's incarnation",
        ));
    }
    Ok(From {
        declarer,
        sequence,
        cause,
    })
}

impl Server {
    async fn ask<T, E: Into<Refused>>(
        &self,
        input: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Input,
    ) -> Result<T, Status> {
        let stopping = || Status::unavailable("the service is stopping");
        let (reply, answer) = oneshot::channel();
        self.inputs
            .send(input(reply))
            .await
            .map_err(|_| stopping())?;
        let answer = answer.await.map_err(|_| stopping())?;
        answer.map_err(|refusal| {
            let Refused(code, words) = refusal.into();
            Status::new(code, words)
        })
    }
}

/// A refusal as it goes over the wire.
struct Refused(Code, String);

impl std::convert::From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Followed(_) => Code::Aborted,
            Refusal::Passed { .. } | Refusal::Changed { .. } | Refusal::Miscounted { .. } => {
                Code::FailedPrecondition
            }
        };
        Refused(code, refusal.to_string())
    }
}

impl std::convert::From<String> for Refused {
    fn from(words: String) -> Self {
        Refused(Code::FailedPrecondition, words)
    }
}

#[tonic::async_trait]
impl VolumeService for Server {
    async fn apply_pod(
        &self,
        request: Request<ApplyPodRequest>,
    ) -> Result<Response<ApplyPodResponse>, Status> {
        let request = request.into_inner();
        let pod = named(request.r#ref)?;
        let from = declared(request.declarer, request.sequence, request.cause)?;
        let spec = manifest::read(&request.manifest, self.node)
            .map_err(|error| Status::invalid_argument(report(&error)))?;
        let state = self
            .ask(|reply| Input::Apply(from, pod, Arc::new(spec), reply))
            .await?;
        Ok(Response::new(ApplyPodResponse { state: Some(state) }))
    }

    async fn release_pod(
        &self,
        request: Request<ReleasePodRequest>,
    ) -> Result<Response<ReleasePodResponse>, Status> {
        let request = request.into_inner();
        let pod = named(request.r#ref)?;
        let from = declared(request.declarer, request.sequence, request.cause)?;
        let state = self.ask(|reply| Input::Release(from, pod, reply)).await?;
        Ok(Response::new(ReleasePodResponse { state: Some(state) }))
    }

    async fn complete_desired(
        &self,
        request: Request<CompleteDesiredRequest>,
    ) -> Result<Response<CompleteDesiredResponse>, Status> {
        let request = request.into_inner();
        let declarer = declared(request.declarer, 0, None)?.declarer;
        self.ask(|reply| Input::Complete(declarer, request.pod_count, reply))
            .await?;
        Ok(Response::new(CompleteDesiredResponse {}))
    }

    async fn prepare_sub_paths(
        &self,
        request: Request<PrepareSubPathsRequest>,
    ) -> Result<Response<PrepareSubPathsResponse>, Status> {
        let request = request.into_inner();
        let pod = named(request.r#ref)?;
        let wanted = PartsWanted {
            uid: pod.uid,
            container: request.container,
            parts: convert::sub_paths(request.sub_paths),
            cause: request.cause,
        };
        let prepared = self.ask(|reply| Input::SubPaths(wanted, reply)).await?;
        let response = PrepareSubPathsResponse {
            host_paths: prepared,
        };
        Ok(Response::new(response))
    }

    type WatchPodVolumesStream = BoxStream<'static, Result<WatchPodVolumesResponse, Status>>;

    async fn watch_pod_volumes(
        &self,
        request: Request<WatchPodVolumesRequest>,
    ) -> Result<Response<Self::WatchPodVolumesStream>, Status> {
        let after = request.into_inner().resume_after;
        Ok(Response::new(polylet_watch::serve(
            self.store.clone(),
            after,
        )))
    }

    type WatchDriversStream = BoxStream<'static, Result<WatchDriversResponse, Status>>;

    async fn watch_drivers(
        &self,
        _: Request<WatchDriversRequest>,
    ) -> Result<Response<Self::WatchDriversStream>, Status> {
        let told = WatchStream::new(self.csi.drivers.subscribe());
        Ok(Response::new(told.map(Ok).boxed()))
    }

    type WatchClaimSizesStream = BoxStream<'static, Result<WatchClaimSizesResponse, Status>>;

    async fn watch_claim_sizes(
        &self,
        _: Request<WatchClaimSizesRequest>,
    ) -> Result<Response<Self::WatchClaimSizesStream>, Status> {
        let told = WatchStream::new(self.csi.sizes.subscribe());
        Ok(Response::new(told.map(Ok).boxed()))
    }

    async fn get_volume_stats(
        &self,
        _: Request<GetVolumeStatsRequest>,
    ) -> Result<Response<GetVolumeStatsResponse>, Status> {
        let stopping = || Status::unavailable("the service is stopping");
        let (reply, answer) = oneshot::channel();
        let asked = self.inputs.send(Input::Mounted(reply)).await;
        asked.map_err(|_| stopping())?;
        let mounted = answer.await.map_err(|_| stopping())?;
        let volumes = stats::of(&self.layout, mounted).await;
        Ok(Response::new(GetVolumeStatsResponse { volumes }))
    }

    type WatchVolumesInUseStream = BoxStream<'static, Result<WatchVolumesInUseResponse, Status>>;

    async fn watch_volumes_in_use(
        &self,
        _: Request<WatchVolumesInUseRequest>,
    ) -> Result<Response<Self::WatchVolumesInUseStream>, Status> {
        let told = WatchStream::new(self.csi.in_use.subscribe());
        Ok(Response::new(told.map(Ok).boxed()))
    }
}
