//! Serves `polylet.volume.v1`.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use polylet_kit::report;
use polylet_model::PodUid;
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
use tonic::{Request, Response, Status};

use crate::convert;
use crate::core::layout::Layout;
use crate::core::manifest;
use crate::core::pod::PodName;
use crate::core::spec::Allocatable;
use crate::csi::stats;
use crate::driver_state::DriverState;
use crate::input::{Caller, Input, SubPathRequest};

/// Passes requests to the event loop, and streams what it publishes.
pub struct Server {
    /// The event loop.
    pub inputs: mpsc::Sender<Input>,
    /// The published statuses of volumes.
    pub store: Store<PodUid, PodVolumes>,
    /// The published state of drivers.
    pub drivers: DriverState,
    /// The paths of volumes.
    pub layout: Layout,
    /// Allocatable resources, for the downward API.
    pub allocatable: Allocatable,
}

fn pod_name(pod: Option<PodRef>) -> Result<PodName, Status> {
    let invalid =
        "ref.uid must be 1 to 128 of letters, digits, '-', '_' and '.', not starting with '.'";
    convert::pod_name(pod).ok_or_else(|| Status::invalid_argument(invalid))
}

fn caller(client_id: String, sequence: u64, cause: Option<Cause>) -> Result<Caller, Status> {
    if client_id.is_empty() {
        return Err(Status::invalid_argument("client_id must not be empty"));
    }
    Ok(Caller {
        client_id,
        sequence,
        cause,
    })
}

impl Server {
    async fn request<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Result<T, Status> {
        let stopping = || Status::unavailable("the service is stopping");
        let (reply, response) = oneshot::channel();
        let sent = self.inputs.send(input(reply)).await;
        sent.map_err(|_| stopping())?;
        response.await.map_err(|_| stopping())
    }
}

#[tonic::async_trait]
impl VolumeService for Server {
    async fn apply_pod(
        &self,
        request: Request<ApplyPodRequest>,
    ) -> Result<Response<ApplyPodResponse>, Status> {
        let request = request.into_inner();
        let pod = pod_name(request.r#ref)?;
        let caller = caller(request.client_id, request.sequence, request.cause)?;
        let spec = manifest::parse(&request.manifest, self.allocatable)
            .map_err(|error| Status::invalid_argument(report(&error)))?;
        let applied = self.request(|reply| Input::Apply(caller, pod, Arc::new(spec), reply));
        let state = applied.await?.map_err(convert::declare_status)?;
        Ok(Response::new(ApplyPodResponse { state: Some(state) }))
    }

    async fn release_pod(
        &self,
        request: Request<ReleasePodRequest>,
    ) -> Result<Response<ReleasePodResponse>, Status> {
        let request = request.into_inner();
        let pod = pod_name(request.r#ref)?;
        let caller = caller(request.client_id, request.sequence, request.cause)?;
        let released = self.request(|reply| Input::Release(caller, pod, reply));
        let state = released.await?.map_err(convert::declare_status)?;
        Ok(Response::new(ReleasePodResponse { state: Some(state) }))
    }

    async fn complete_desired(
        &self,
        request: Request<CompleteDesiredRequest>,
    ) -> Result<Response<CompleteDesiredResponse>, Status> {
        let request = request.into_inner();
        let client_id = caller(request.client_id, 0, None)?.client_id;
        let completed = self.request(|reply| Input::Complete(client_id, request.pod_count, reply));
        completed.await?.map_err(convert::declare_status)?;
        Ok(Response::new(CompleteDesiredResponse {}))
    }

    async fn prepare_sub_paths(
        &self,
        request: Request<PrepareSubPathsRequest>,
    ) -> Result<Response<PrepareSubPathsResponse>, Status> {
        let request = request.into_inner();
        let sub_paths = SubPathRequest {
            uid: pod_name(request.r#ref)?.uid,
            container: request.container,
            sub_paths: convert::sub_paths(request.sub_paths),
            cause: request.cause,
        };
        let prepared = self.request(|reply| Input::SubPaths(sub_paths, reply));
        let host_paths = prepared.await?.map_err(Status::failed_precondition)?;
        Ok(Response::new(PrepareSubPathsResponse { host_paths }))
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
        let drivers = WatchStream::new(self.drivers.drivers.subscribe());
        Ok(Response::new(drivers.map(Ok).boxed()))
    }

    type WatchClaimSizesStream = BoxStream<'static, Result<WatchClaimSizesResponse, Status>>;

    async fn watch_claim_sizes(
        &self,
        _: Request<WatchClaimSizesRequest>,
    ) -> Result<Response<Self::WatchClaimSizesStream>, Status> {
        let sizes = WatchStream::new(self.drivers.sizes.subscribe());
        Ok(Response::new(sizes.map(Ok).boxed()))
    }

    async fn get_volume_stats(
        &self,
        _: Request<GetVolumeStatsRequest>,
    ) -> Result<Response<GetVolumeStatsResponse>, Status> {
        let mounted = self.request(Input::MountedVolumes).await?;
        let usage = stats::usage(&self.layout, mounted).await;
        let volumes = usage.into_iter().map(convert::volume_stats).collect();
        Ok(Response::new(GetVolumeStatsResponse { volumes }))
    }

    type WatchVolumesInUseStream = BoxStream<'static, Result<WatchVolumesInUseResponse, Status>>;

    async fn watch_volumes_in_use(
        &self,
        _: Request<WatchVolumesInUseRequest>,
    ) -> Result<Response<Self::WatchVolumesInUseStream>, Status> {
        let in_use = WatchStream::new(self.drivers.in_use.subscribe());
        Ok(Response::new(in_use.map(Ok).boxed()))
    }
}
