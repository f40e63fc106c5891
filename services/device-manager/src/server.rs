//! The gRPC methods: resources and pods' devices as state streams, and the calls for a pod.

use futures::stream::BoxStream;
use polylet_watch::serve;
use polylet_wire::device::v1::device_service_server::DeviceService;
use polylet_wire::device::v1::{
    AllocateDevicesRequest, AllocateDevicesResponse, PrepareContainerRequest,
    PrepareContainerResponse, WatchPodDevicesRequest, WatchPodDevicesResponse,
    WatchResourcesRequest, WatchResourcesResponse,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::input::Input;
use crate::run::PublishedDevices;

/// The gRPC methods of `DeviceService`.
#[derive(Clone)]
pub(crate) struct Server {
    published: PublishedDevices,
    inputs: mpsc::Sender<Input>,
}

impl Server {
    pub(crate) fn new(published: PublishedDevices, inputs: mpsc::Sender<Input>) -> Self {
        Server { published, inputs }
    }

    async fn ask<R>(
        &self,
        input: Input,
        response: oneshot::Receiver<R>,
    ) -> Result<Response<R>, Status> {
        let stopping = || Status::unavailable("device-manager is shutting down");
        self.inputs.send(input).await.map_err(|_| stopping())?;
        response.await.map(Response::new).map_err(|_| stopping())
    }
}

#[tonic::async_trait]
impl DeviceService for Server {
    type WatchResourcesStream = BoxStream<'static, Result<WatchResourcesResponse, Status>>;
    type WatchPodDevicesStream = BoxStream<'static, Result<WatchPodDevicesResponse, Status>>;

    async fn watch_resources(
        &self,
        request: Request<WatchResourcesRequest>,
    ) -> Result<Response<Self::WatchResourcesStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        let store = self.published.resources.clone();
        Ok(Response::new(serve(store, resume_after)))
    }

    async fn watch_pod_devices(
        &self,
        request: Request<WatchPodDevicesRequest>,
    ) -> Result<Response<Self::WatchPodDevicesStream>, Status> {
        let resume_after = request.into_inner().resume_after;
        let store = self.published.pods.clone();
        Ok(Response::new(serve(store, resume_after)))
    }

    async fn allocate_devices(
        &self,
        request: Request<AllocateDevicesRequest>,
    ) -> Result<Response<AllocateDevicesResponse>, Status> {
        let (sender, response) = oneshot::channel();
        let input = Input::Allocate(request.into_inner(), sender);
        self.ask(input, response).await
    }

    async fn prepare_container(
        &self,
        request: Request<PrepareContainerRequest>,
    ) -> Result<Response<PrepareContainerResponse>, Status> {
        let (sender, response) = oneshot::channel();
        let input = Input::Prepare(request.into_inner(), sender);
        self.ask(input, response).await
    }
}
