//! A CSI test driver that can be stopped and started: directories as file systems, loop devices as
//! block devices, and a list of received calls. It uses the real CSI and plugin registration
//! sockets.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polylet_wire::csi::v1::VolumeCapability;
use polylet_wire::csi::v1::node_server::NodeServer;
use polylet_wire::csi::v1::volume_capability::AccessType;
use polylet_wire::pluginregistration::v1::registration_server::{Registration, RegistrationServer};
use polylet_wire::pluginregistration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

mod node;

/// Name of the driver.
pub const NAME: &str = "disk.test.example";

/// The driver with its persistent state. Clones share it.
#[derive(Clone)]
pub struct TestCsiDriver {
    endpoint: PathBuf,
    registration: PathBuf,
    disk: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    /// Trace contexts of calls to the node service.
    traceparents: Vec<String>,
    refused: Vec<(String, Status)>,
    most: i64,
    silent: Option<String>,
}

/// A running driver; stopped on drop.
pub struct RunningCsiDriver(Vec<JoinHandle<()>>, [PathBuf; 2]);

impl Drop for RunningCsiDriver {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
        for socket in &self.1 {
            let _ = std::fs::remove_file(socket);
        }
    }
}

impl TestCsiDriver {
    /// A driver for the node with this root directory, with volumes in `disk` and at most five of
    /// them on the node.
    ///
    /// # Errors
    /// Fails if its directories cannot be created.
    pub fn new(root: &Path, disk: &Path) -> io::Result<Self> {
        let (own, registry) = (
            root.join("plugins").join(NAME),
            root.join("plugins_registry"),
        );
        for dir in [disk, &own, &registry] {
            std::fs::create_dir_all(dir)?;
        }
        Ok(TestCsiDriver {
            endpoint: own.join("csi.sock"),
            registration: registry.join(format!("{NAME}-reg.sock")),
            disk: disk.to_owned(),
            state: Arc::new(Mutex::new(State {
                most: 5,
                ..State::default()
            })),
        })
    }

    /// Starts the driver; it is listening on return.
    ///
    /// # Errors
    /// Fails if it cannot listen.
    pub fn start(&self) -> io::Result<RunningCsiDriver> {
        let listen = |path: &Path| UnixListener::bind(path).map(UnixListenerStream::new);
        let traced = self.clone();
        let note_context = move |call: Request<()>| {
            let context = call.metadata().get("traceparent");
            let context = context.and_then(|context| context.to_str().ok());
            let mut state = traced.state();
            state.traceparents.extend(context.map(str::to_owned));
            Ok(call)
        };
        let service = NodeServer::with_interceptor(self.clone(), note_context);
        let node = tonic::transport::Server::builder()
            .serve_with_incoming(service, listen(&self.endpoint)?);
        let registration = tonic::transport::Server::builder().serve_with_incoming(
            RegistrationServer::new(self.clone()),
            listen(&self.registration)?,
        );
        // Ends when stopped.
        let tasks = vec![
            tokio::spawn(async move { drop(node.await) }),
            tokio::spawn(async move { drop(registration.await) }),
        ];
        let sockets = [self.endpoint.clone(), self.registration.clone()];
        Ok(RunningCsiDriver(tasks, sockets))
    }

    /// Calls received since the last invocation, as text.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// Trace contexts that calls have carried, in their order.
    pub fn traceparents(&self) -> Vec<String> {
        self.state().traceparents.clone()
    }

    /// Number of calls that [`Driver::calls`] would return.
    pub fn waiting(&self) -> usize {
        self.state().calls.len()
    }

    /// Fails the next call whose text starts with this prefix.
    pub fn refuse(&self, call: &str, with: Status) {
        self.state().refused.push((call.to_owned(), with));
    }

    /// Never answers calls whose text starts with this prefix.
    pub fn never_answer(&self, call: &str) {
        self.state().silent = Some(call.to_owned());
    }

    /// Sets the maximum number of volumes on the node.
    pub fn can_have(&self, most: i64) {
        self.state().most = most;
    }

    /// Path of a volume: a directory, or the backing file of a block device.
    pub fn volume(&self, id: &str) -> PathBuf {
        self.disk.join(id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn note(&self, call: String) -> Result<(), Status> {
        let (refused, silent) = {
            let mut state = self.state();
            let silent = state.silent.as_ref();
            let silent = silent.is_some_and(|prefix| call.starts_with(prefix));
            let mut refused = state.refused.iter();
            let refused = refused.position(|(words, _)| call.starts_with(words));
            state.calls.push(call);
            (refused.map(|at| state.refused.remove(at).1), silent)
        };
        if silent {
            std::future::pending::<()>().await;
        }
        refused.map_or(Ok(()), Err)
    }
}

fn is_mounted(at: &str) -> io::Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let mut lines = mounts.lines();
    Ok(lines.any(|line| line.split(' ').nth(4) == Some(at)))
}

/// Idempotent, as CSI requires.
fn bind(from: &Path, to: &str) -> io::Result<()> {
    match is_mounted(to)? {
        true => Ok(()),
        false => Ok(rustix::mount::mount_bind(from, to)?),
    }
}

fn unbind(at: &str) -> io::Result<()> {
    let flags = rustix::mount::UnmountFlags::empty();
    match is_mounted(at)? {
        true => Ok(rustix::mount::unmount(at, flags)?),
        false => Ok(()),
    }
}

fn losetup(arguments: &[&str], file: &Path) -> io::Result<String> {
    let mut command = Command::new("losetup");
    let done = command.args(arguments).arg(file).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(io::Error::other(format!("{done:?}"))),
    }
}

/// The loop device of a file.
fn device(file: &Path) -> io::Result<Option<String>> {
    let all = losetup(&["-j"], file)?;
    let name = all.split(':').next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    let kind = capability.and_then(|capability| capability.access_type.as_ref());
    matches!(kind, Some(AccessType::Block(_)))
}

#[tonic::async_trait]
impl Registration for TestCsiDriver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: NAME.into(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if !status.plugin_registered {
            self.note(format!("registration failed: {}", status.error))
                .await?;
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
