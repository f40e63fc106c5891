//! A plugin on a real socket, which may hang and hold back what it offers.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{Stream, StreamExt, future};
use polylet_wire::deviceplugin::v1beta1 as wire;
use polylet_wire::deviceplugin::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the plugin lists.
#[derive(Clone, Copy)]
pub(super) enum DeviceList {
    /// Nothing yet.
    HeldBack,
    Devices(&'static [&'static str]),
    /// The stream is over.
    Ended,
}

/// The plugin. Clones share its state.
#[derive(Clone)]
pub(super) struct TestPlugin {
    list: watch::Sender<DeviceList>,
    calls: Arc<AtomicUsize>,
    hanging_calls: Arc<AtomicUsize>,
}

impl TestPlugin {
    /// Serves at this socket.
    pub(super) fn start(socket: &Path, list: DeviceList) -> Self {
        let plugin = TestPlugin {
            list: watch::Sender::new(list),
            calls: Arc::default(),
            hanging_calls: Arc::default(),
        };
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let server = DevicePluginServer::new(plugin.clone());
        tokio::spawn(
            Server::builder()
                .add_service(server)
                .serve_with_incoming(incoming),
        );
        plugin
    }

    pub(super) fn list(&self, list: DeviceList) {
        self.list.send_replace(list);
    }

    /// Does not answer the next `GetDevicePluginOptions`.
    pub(super) fn hang_once(&self) {
        self.hanging_calls.store(1, Ordering::SeqCst);
    }

    /// Calls of `GetDevicePluginOptions` so far.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[tonic::async_trait]
impl DevicePlugin for TestPlugin {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _request: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fewer = |calls: usize| calls.checked_sub(1);
        let hangs = self
            .hanging_calls
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
        if hangs.is_ok() {
            future::pending::<()>().await;
        }
        Ok(Response::new(wire::DevicePluginOptions::default()))
    }

    async fn list_and_watch(
        &self,
        _request: Request<wire::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.list.subscribe());
        let lists = lists.take_while(|list| future::ready(!matches!(list, DeviceList::Ended)));
        let lists = lists.filter_map(async |list| match list {
            DeviceList::Devices(ids) => Some(Ok(response(ids))),
            DeviceList::HeldBack | DeviceList::Ended => None,
        });
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        _request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn allocate(
        &self,
        _request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn pre_start_container(
        &self,
        _request: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

fn response(ids: &[&str]) -> wire::ListAndWatchResponse {
    let device = |id: &&str| wire::Device {
        id: (*id).to_owned(),
        health: "Healthy".to_owned(),
        topology: None,
    };
    wire::ListAndWatchResponse {
        devices: ids.iter().map(device).collect(),
    }
}
