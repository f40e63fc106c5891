//! A device plugin for tests, on the real sockets: it offers devices that are all the node's
//! `/dev/null`, says which ones a container has in its environment, and lists the calls it received.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use polylet_wire::deviceplugin::v1beta1 as wire;
use polylet_wire::deviceplugin::v1beta1::device_plugin_server::DevicePluginServer;
use polylet_wire::deviceplugin::v1beta1::registration_client::RegistrationClient;
use tokio::net::UnixListener;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::cri;
use crate::error::HarnessError;

/// Lists of devices.
type DeviceLists = Pin<Box<dyn Stream<Item = Result<wire::ListAndWatchResponse, Status>> + Send>>;

/// Devices by id, and whether they are healthy.
pub type TestDevices = BTreeMap<String, bool>;

/// The plugin. Clones share its state.
#[derive(Clone)]
pub struct TestDevicePlugin {
    directory: PathBuf,
    resource: String,
    socket: &'static str,
    devices: watch::Sender<TestDevices>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    failing: Option<String>,
}

/// A running plugin; stopped on drop, when its socket and connections go away.
pub struct RunningDevicePlugin {
    /// Ends the plugin's thread, whose runtime has the connections that it accepted.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl RunningDevicePlugin {
    /// Whether its socket is still there.
    pub fn is_reachable(&self) -> bool {
        self.socket.exists()
    }
}

impl Drop for RunningDevicePlugin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl TestDevicePlugin {
    /// A plugin for the node with this directory of plugins.
    pub fn new(directory: &Path, resource: &str, devices: &[&str]) -> Self {
        let devices = devices.iter().map(|id| ((*id).to_owned(), true));
        TestDevicePlugin {
            directory: directory.to_owned(),
            resource: resource.to_owned(),
            socket: "test.sock",
            devices: watch::Sender::new(devices.collect()),
            state: Arc::default(),
        }
    }

    /// Starts to serve; it is listening on return, and has not registered.
    ///
    /// # Errors
    /// Fails if it cannot listen.
    pub fn start(&self) -> io::Result<RunningDevicePlugin> {
        let socket = self.directory.join(self.socket);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&socket)?
        };
        let server = tonic::transport::Server::builder().serve_with_incoming(
            DevicePluginServer::new(self.clone()),
            UnixListenerStream::new(listener),
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = server => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(RunningDevicePlugin {
            stop: Some(stop),
            thread: Some(thread),
            socket,
        })
    }

    /// Registers, as plugins do when they start.
    ///
    /// # Errors
    /// The node refuses it, or cannot be reached.
    pub async fn register(&self) -> Result<(), HarnessError> {
        let channel = cri::channel(&self.directory.join("kubelet.sock"))?;
        let request = wire::RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: self.socket.to_owned(),
            resource_name: self.resource.clone(),
            options: None,
        };
        let registered = RegistrationClient::new(channel).register(request).await;
        registered.map(drop).map_err(|source| HarnessError::Call {
            call: "Register",
            source: Box::new(source),
        })
    }

    /// Changes the health of a device.
    pub fn set_health(&self, id: &str, healthy: bool) {
        self.devices.send_modify(|devices| {
            devices.insert(id.to_owned(), healthy);
        });
    }

    /// Fails calls of this name from now on; none with an empty one.
    pub fn fail(&self, call: &str) {
        self.state().failing = (!call.is_empty()).then(|| call.to_owned());
    }

    /// Calls received since the last invocation: the method, and ids of devices.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, call: &str, devices: &[String]) -> Result<(), Status> {
        let mut state = self.state();
        state
            .calls
            .push(format!("{call} {}", devices.join(",")).trim().to_owned());
        match &state.failing {
            Some(failing) if failing == call => Err(Status::unknown(format!("{call} failed"))),
            _ => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl wire::device_plugin_server::DevicePlugin for TestDevicePlugin {
    type ListAndWatchStream = DeviceLists;

    async fn get_device_plugin_options(
        &self,
        _request: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        self.record("GetDevicePluginOptions", &[])?;
        Ok(Response::new(wire::DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    async fn list_and_watch(
        &self,
        _request: Request<wire::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        self.record("ListAndWatch", &[])?;
        let list = |devices: TestDevices| {
            let device = |(id, healthy): (String, bool)| wire::Device {
                id,
                health: if healthy { "Healthy" } else { "Unhealthy" }.to_owned(),
                topology: None,
            };
            let devices = devices.into_iter().map(device).collect();
            Ok(wire::ListAndWatchResponse { devices })
        };
        let lists = WatchStream::new(self.devices.subscribe()).map(list);
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let prefer = |request: &wire::ContainerPreferredAllocationRequest| {
            self.record("GetPreferredAllocation", &request.available_device_i_ds)?;
            let size = usize::try_from(request.allocation_size).unwrap_or_default();
            // The last ones.
            let available = request.available_device_i_ds.iter().rev();
            let device_i_ds = available.take(size).cloned().collect();
            Ok(wire::ContainerPreferredAllocationResponse { device_i_ds })
        };
        let container_responses: Result<Vec<_>, Status> = requests.iter().map(prefer).collect();
        Ok(Response::new(wire::PreferredAllocationResponse {
            container_responses: container_responses?,
        }))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let allocate = |request: &wire::ContainerAllocateRequest| {
            self.record("Allocate", &request.devices_ids)?;
            let device = |id: &String| wire::DeviceSpec {
                container_path: format!("/dev/test-{id}"),
                host_path: "/dev/null".to_owned(),
                permissions: "rw".to_owned(),
            };
            let mount = wire::Mount {
                container_path: "/plugin".to_owned(),
                host_path: self.directory.display().to_string(),
                read_only: true,
            };
            let ids = request.devices_ids.join(",");
            Ok(wire::ContainerAllocateResponse {
                envs: [("TEST_DEVICES".to_owned(), ids.clone())].into(),
                mounts: vec![mount],
                devices: request.devices_ids.iter().map(device).collect(),
                annotations: [("test.example/devices".to_owned(), ids)].into(),
                cdi_devices: Vec::new(),
            })
        };
        let container_responses: Result<Vec<_>, Status> = requests.iter().map(allocate).collect();
        Ok(Response::new(wire::AllocateResponse {
            container_responses: container_responses?,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        self.record("PreStartContainer", &request.into_inner().devices_ids)?;
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}
