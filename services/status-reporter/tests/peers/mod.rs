//! Peers of the process under test, serving streams from stores that the test fills.

use std::path::Path;
use std::thread::JoinHandle;

use futures::stream::BoxStream;
use polylet_model::PodUid;
use polylet_watch::{ProbeItemKey, Store, serve};
use polylet_wire::device::v1::device_service_server::{DeviceService, DeviceServiceServer};
use polylet_wire::device::v1::*;
use polylet_wire::pleg::v1::pleg_service_server::{PlegService, PlegServiceServer};
use polylet_wire::pleg::v1::*;
use polylet_wire::podconfig::v1::pod_config_service_server::{
    PodConfigService, PodConfigServiceServer,
};
use polylet_wire::podconfig::v1::*;
use polylet_wire::prober::v1::prober_service_server::{ProberService, ProberServiceServer};
use polylet_wire::prober::v1::*;
use polylet_wire::sync::v1::sync_service_server::{SyncService, SyncServiceServer};
use polylet_wire::sync::v1::*;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::RoutesBuilder;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

pub(crate) mod facts;

type RpcResult<T> = Result<Response<T>, Status>;
type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// The state of all peers, of one incarnation each.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) files: Store<PodUid, Pod>,
    pub(crate) others: Store<PodUid, Pod>,
    pub(crate) syncs: Store<PodUid, PodSync>,
    pub(crate) runtime_states: Store<PodUid, PodState>,
    pub(crate) probes: Store<ProbeItemKey, ProbeStatus>,
    pub(crate) devices: Store<PodUid, PodDevices>,
}

impl Peers {
    pub(crate) fn new(incarnation: &str) -> Self {
        Self {
            files: Store::new(incarnation),
            others: Store::new(incarnation),
            syncs: Store::new(incarnation),
            runtime_states: Store::new(incarnation),
            probes: Store::new(incarnation),
            devices: Store::new(incarnation),
        }
    }

    pub(crate) fn mark_all_synced(&self) {
        self.files.mark_synced();
        self.others.mark_synced();
        self.syncs.mark_synced();
        self.runtime_states.mark_synced();
        self.probes.mark_synced();
        self.devices.mark_synced();
    }

    /// The peers after a restart, with the same state.
    pub(crate) fn restarted(&self, incarnation: &str) -> Self {
        let next = Self::new(incarnation);
        next.files.replace(self.files.snapshot());
        next.syncs.replace(self.syncs.snapshot());
        next.runtime_states.replace(self.runtime_states.snapshot());
        next.probes.replace(self.probes.snapshot());
        next.devices.replace(self.devices.snapshot());
        next
    }

    /// Serves one peer on its socket.
    pub(crate) fn serve(&self, dir: &Path, peer: &str) -> PeerProcess {
        let socket = dir.join(format!("{peer}.sock"));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut routes = RoutesBuilder::default();
        match peer {
            "pod-config" => routes.add_service(PodConfigServiceServer::new(self.clone())),
            "sync-coordinator" => routes.add_service(SyncServiceServer::new(self.clone())),
            "pleg" => routes.add_service(PlegServiceServer::new(self.clone())),
            "device-manager" => routes.add_service(DeviceServiceServer::new(self.clone())),
            "prober" => routes.add_service(ProberServiceServer::new(self.clone())),
            other => panic!("no such peer: {other}"),
        };
        let server = Server::builder().add_routes(routes.routes());
        let (stop, stopped) = oneshot::channel();
        // A runtime of its own closes every connection when it is dropped, as a process does.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
                tokio::select! {
                    ended = server.serve_with_incoming(listener) => ended.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        PeerProcess {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

/// A running peer, stopped when dropped.
pub(crate) struct PeerProcess {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[tonic::async_trait]
impl PodConfigService for Peers {
    type WatchPodsStream = Messages<WatchPodsResponse>;

    async fn watch_pods(
        &self,
        request: Request<WatchPodsRequest>,
    ) -> RpcResult<Self::WatchPodsStream> {
        let request = request.into_inner();
        let store = if request.source() == PodSource::File {
            &self.files
        } else {
            &self.others
        };
        Ok(Response::new(serve(store.clone(), request.resume_after)))
    }

    type WatchMirrorPodsStream = Messages<WatchMirrorPodsResponse>;

    async fn watch_mirror_pods(
        &self,
        _: Request<WatchMirrorPodsRequest>,
    ) -> RpcResult<Self::WatchMirrorPodsStream> {
        Err(Status::unimplemented("not called"))
    }

    type WatchNodeStream = Messages<WatchNodeResponse>;

    async fn watch_node(&self, _: Request<WatchNodeRequest>) -> RpcResult<Self::WatchNodeStream> {
        Err(Status::unimplemented("not called"))
    }

    async fn list_manifest_errors(
        &self,
        _: Request<ListManifestErrorsRequest>,
    ) -> RpcResult<ListManifestErrorsResponse> {
        Err(Status::unimplemented("not called"))
    }
}

#[tonic::async_trait]
impl SyncService for Peers {
    type WatchPodSyncStream = Messages<WatchPodSyncResponse>;

    async fn watch_pod_sync(
        &self,
        request: Request<WatchPodSyncRequest>,
    ) -> RpcResult<Self::WatchPodSyncStream> {
        Ok(Response::new(serve(
            self.syncs.clone(),
            request.into_inner().resume_after,
        )))
    }
}

#[tonic::async_trait]
impl PlegService for Peers {
    type WatchPodStatesStream = Messages<WatchPodStatesResponse>;
    type WatchRuntimeStream = Messages<WatchRuntimeResponse>;

    async fn watch_pod_states(
        &self,
        request: Request<WatchPodStatesRequest>,
    ) -> RpcResult<Self::WatchPodStatesStream> {
        Ok(Response::new(serve(
            self.runtime_states.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn refresh_pod(&self, _: Request<RefreshPodRequest>) -> RpcResult<RefreshPodResponse> {
        Err(Status::unimplemented("not called"))
    }

    async fn watch_runtime(
        &self,
        _: Request<WatchRuntimeRequest>,
    ) -> RpcResult<Self::WatchRuntimeStream> {
        let runtime = WatchRuntimeResponse {
            ready: true,
            runtime_name: "containerd".into(),
            ..Default::default()
        };
        let forever = futures::stream::pending();
        Ok(Response::new(Box::pin(futures::StreamExt::chain(
            futures::stream::iter([Ok(runtime)]),
            forever,
        ))))
    }
}

#[tonic::async_trait]
impl ProberService for Peers {
    type WatchProbeStatusesStream = Messages<WatchProbeStatusesResponse>;

    async fn watch_probe_statuses(
        &self,
        request: Request<WatchProbeStatusesRequest>,
    ) -> RpcResult<Self::WatchProbeStatusesStream> {
        Ok(Response::new(serve(
            self.probes.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn list_probe_counts(
        &self,
        _request: Request<ListProbeCountsRequest>,
    ) -> RpcResult<ListProbeCountsResponse> {
        Ok(Response::new(ListProbeCountsResponse::default()))
    }
}

#[tonic::async_trait]
impl DeviceService for Peers {
    type WatchResourcesStream = Messages<WatchResourcesResponse>;
    type WatchPodDevicesStream = Messages<WatchPodDevicesResponse>;

    async fn watch_resources(
        &self,
        _: Request<WatchResourcesRequest>,
    ) -> RpcResult<Self::WatchResourcesStream> {
        Err(Status::unimplemented("not called"))
    }

    async fn watch_pod_devices(
        &self,
        request: Request<WatchPodDevicesRequest>,
    ) -> RpcResult<Self::WatchPodDevicesStream> {
        Ok(Response::new(serve(
            self.devices.clone(),
            request.into_inner().resume_after,
        )))
    }

    async fn allocate_devices(
        &self,
        _: Request<AllocateDevicesRequest>,
    ) -> RpcResult<AllocateDevicesResponse> {
        Err(Status::unimplemented("not called"))
    }

    async fn prepare_container(
        &self,
        _: Request<PrepareContainerRequest>,
    ) -> RpcResult<PrepareContainerResponse> {
        Err(Status::unimplemented("not called"))
    }
}
