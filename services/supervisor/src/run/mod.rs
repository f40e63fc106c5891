//! `polylet run`: the services as children of this process, as units of systemd, or run by something else.

mod child;
mod effective_config;
mod event_loop;
mod external;
mod handover_check;
mod health;
mod input;
mod memory;
mod notify;
mod own;
mod process;
mod programs;
mod publish_metrics;
mod readiness;
mod server;
mod service_manager;
mod socket_watch;
mod sockets;
mod stored_descriptors;
mod systemd;
mod table;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::listener::ListenError;
use polylet_kit::lock::Lock;
use polylet_kit::serve::{Routes, ServeError};
use polylet_kit::{Config, Exit, listener, lock, report, telemetry};
use polylet_wire::supervisor::v1::supervisor_service_server::SupervisorServiceServer;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedSender};

use effective_config::ConfigFile;
use input::Input;
use own::OwnProcess;

pub(crate) use handover_check::answer_check;

use crate::backend::own::OwnHandle;
use crate::backend::{Backend, BackendKind};
use crate::flags::EffectiveConfig;
use crate::handover::{Handover, descriptors, signals};
use crate::systemctl::Systemctl;
use crate::traces::TraceStore;
use crate::upgrade::{UpgradeError, Upgrades};

/// Why the services did not start.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Preflight(#[from] polylet_machine::PreflightError),
    #[error("creating the directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("writing the effective configuration {path}")]
    Configuration {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Lock(#[from] lock::LockError),
    #[error(transparent)]
    Programs(#[from] programs::ProgramsError),
    #[error(transparent)]
    Sockets(#[from] sockets::SocketsError),
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Serve(#[from] polylet_kit::serve::ServeError),
    #[error(transparent)]
    OwnServer(#[from] own::OwnServerError),
    #[error(transparent)]
    Services(#[from] service_manager::ServiceManagerError),
    #[error("the upgrade of this program cannot be continued")]
    History(#[source] UpgradeError),
}

impl RunError {
    fn exit(&self) -> Exit {
        use sockets::SocketsError;
        match self {
            RunError::Lock(lock::LockError::Locked { .. })
            | RunError::Sockets(SocketsError::Running(lock::LockError::Locked { .. })) => {
                Exit::Locked
            }
            RunError::Programs(_) | RunError::Preflight(_) => Exit::Config,
            _ => Exit::Failed,
        }
    }
}

/// Runs the services until SIGTERM or SIGINT.
pub(crate) fn main(effective: EffectiveConfig, backend: BackendKind) -> Exit {
    let config = &effective.config;
    // Before anything else opens a descriptor: services expect their socket as descriptor 3.
    let reserved = sockets::reserve();
    polylet_kit::memory::single_arena();
    let telemetry = telemetry::init(&telemetry::Setup {
        identity: crate::traces::identity(&config.polylet.node_name),
        log_level: &config.polylet.log_level,
        sampler: polylet_kit::sampling::TraceSampler::default(),
        span_socket: None,
    });
    let handover = Handover::from_environment();
    let result = reserved
        .map_err(|source| RunError::Sockets(source.into()))
        .and_then(|reserved| {
            let result = match backend {
                BackendKind::Child => start(&effective, handover.as_ref()),
                BackendKind::Systemd => follow(&effective.config, handover.as_ref()),
                BackendKind::External => external::start(&effective.config),
            };
            drop(reserved);
            result
        });
    if let (Err(error), Some(handover)) = (&result, &handover) {
        handover.give_back(report(error));
    }
    drop(telemetry);
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => {
            tracing::error!(error = report(&error), "failed to run");
            error.exit()
        }
    }
}

/// Returns to the program before in this process, if there is one: this one has no valid configuration. Comes
/// back otherwise.
pub(crate) fn give_back(reason: String) {
    if let Some(handover) = Handover::from_environment() {
        handover.give_back(reason);
    }
}

fn start(effective: &EffectiveConfig, handover: Option<&Handover>) -> Result<(), RunError> {
    let config = &effective.config;
    let polylet = &config.polylet;
    let directory = polylet.run_directory.clone();
    polylet_machine::check(&config.kubelet)?;
    create_directory(&directory, 0o755)?;
    let own_directory = directory.join("supervisor");
    create_directory(&own_directory, 0o700)?;
    let lock = acquire_lock(&directory, Duration::ZERO, handover)?;
    // After the lock, as the services of another supervisor may read the file.
    let config_file = match &effective.text {
        None => ConfigFile::existing(&config.path),
        Some(text) => ConfigFile::write(&config.path, text).map_err(|source| {
            let path = config.path.clone();
            RunError::Configuration { path, source }
        })?,
    };
    let program_directory = programs::directory(polylet.bin_directory.as_deref())?;
    let programs = programs::find(&program_directory)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        node = polylet.node_name,
        run_directory = %directory.display(),
        continued = handover.is_some(),
        "starting services"
    );
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration warning");
    }
    polylet_kit::process_limits::apply(&config.kubelet);
    let sockets = sockets::open(&directory, handover)?;
    let listener = open_own_socket(&directory, handover, listener::bind)?;
    let socket_files = socket_watch::SocketFiles::open(&directory, &own_directory);
    runtime()?.block_on(async {
        tokio::spawn(socket_files.watch());
        let (inputs, incoming) = mpsc::unbounded_channel();
        let (sender, requests) = mpsc::unbounded_channel();
        let backend = Backend::Child(sender);
        let setup = OwnSetup {
            config,
            handover,
            listener,
            lock,
        };
        let own = setup.start(backend, program_directory, inputs.clone())?;
        let services = event_loop::run(event_loop::ServiceSetup {
            config_file: &config_file.path,
            run_directory: &polylet.run_directory,
            directory: own_directory,
            programs,
            sockets,
            inputs,
            incoming,
            requests,
            handover,
            own,
        });
        tokio::select! {
            () = config_file.keep_trying() => Ok(()),
            stopped = services => stopped.map_err(RunError::Services),
        }
    })
}

/// Follows the services that systemd runs.
fn follow(config: &Config, handover: Option<&Handover>) -> Result<(), RunError> {
    let polylet = &config.polylet;
    let directory = &polylet.run_directory;
    polylet_machine::check(&config.kubelet)?;
    create_directory(directory, 0o755)?;
    let lock = acquire_lock(directory, lock::TIMEOUT, handover)?;
    let listener = open_own_socket(directory, handover, listener::inherit_or_bind)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        node = polylet.node_name,
        "following the services, which are units of systemd"
    );
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration warning");
    }
    let program_directory = programs::directory(polylet.bin_directory.as_deref())?;
    runtime()?.block_on(async {
        let (inputs, incoming) = mpsc::unbounded_channel();
        let setup = OwnSetup {
            config,
            handover,
            listener,
            lock,
        };
        let backend = Backend::Systemd(Systemctl);
        let own = setup.start(backend, program_directory, inputs.clone())?;
        let following = systemd::run(directory, inputs, incoming, own, handover);
        following.await.map_err(RunError::Services)
    })
}

fn runtime() -> Result<Runtime, RunError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        // Signals that arrive while the program is replaced must not go to a thread that ends with it.
        .on_thread_start(signals::block)
        .build()
        .map_err(RunError::Runtime)
}

/// The lock that excludes a second supervisor.
fn acquire_lock(
    directory: &Path,
    timeout: Duration,
    handover: Option<&Handover>,
) -> Result<Lock, RunError> {
    match handover.and_then(|one| one.get(descriptors::LOCK)) {
        Some(inherited) => Ok(Lock::inherited(inherited.into())),
        None => Ok(Lock::acquire(&directory.join("supervisor.lock"), timeout)?),
    }
}

/// The supervisor's socket.
fn open_own_socket(
    directory: &Path,
    handover: Option<&Handover>,
    open: impl FnOnce(&Path) -> Result<UnixListener, ListenError>,
) -> Result<UnixListener, RunError> {
    match handover.and_then(|one| one.get(descriptors::OWN_SOCKET)) {
        Some(inherited) => Ok(inherited.into()),
        None => {
            let opened = open(&directory.join("supervisor.sock"));
            opened.map_err(|error| RunError::Sockets(error.into()))
        }
    }
}

/// What this process serves its own socket with.
struct OwnSetup<'a> {
    config: &'a Config,
    handover: Option<&'a Handover>,
    listener: UnixListener,
    lock: Lock,
}

impl OwnSetup<'_> {
    /// Serves the socket, and continues an upgrade that was interrupted. Needs the tokio runtime.
    fn start(
        self,
        backend: Backend,
        programs: PathBuf,
        inputs: UnboundedSender<Input>,
    ) -> Result<OwnProcess, RunError> {
        let polylet = &self.config.polylet;
        let (run_directory, state_directory) = (&polylet.run_directory, &polylet.state_directory);
        let (sender, requests) = mpsc::unbounded_channel();
        let refusal = self.handover.and_then(|one| one.state.refusal.clone());
        let own = OwnHandle::new(self.handover.is_some(), refusal, sender);
        let upgrades = Upgrades::open(backend, own, programs, run_directory, state_directory);
        if self.handover.is_some() {
            upgrades.history().map_err(RunError::History)?;
        }
        upgrades.resume();
        let traces = TraceStore::start(self.config);
        if let Some(spans) = self.handover.and_then(Handover::spans) {
            traces.restore(spans);
        }
        let publish = publish_metrics::run(run_directory.clone(), traces.clone());
        tokio::spawn(publish);
        let routes = routes(self.config, &traces, inputs, upgrades);
        let own = OwnProcess::start(self.listener, self.lock, routes, traces, requests);
        Ok(own?)
    }
}

/// The services of the supervisor's socket.
fn routes(
    config: &Config,
    traces: &TraceStore,
    inputs: UnboundedSender<Input>,
    upgrades: Upgrades,
) -> Routes {
    let server = server::Server {
        inputs,
        traces: traces.clone(),
        node_name: config.polylet.node_name.clone(),
        upgrades,
    };
    let mut routes = Routes::default();
    routes.add(traces.server());
    routes.add(tonic_health::server::health_reporter().1);
    routes.add(SupervisorServiceServer::new(server));
    routes.add(polylet_kit::profile::server());
    routes
}

/// Serves the supervisor's socket. Needs the tokio runtime.
fn serve(
    config: &Config,
    listener: UnixListener,
    inputs: UnboundedSender<Input>,
    upgrades: Upgrades,
) -> impl Future<Output = Result<(), ServeError>> + use<> {
    let traces = TraceStore::start(config);
    let publish = publish_metrics::run(config.polylet.run_directory.clone(), traces.clone());
    tokio::spawn(publish);
    let routes = routes(config, &traces, inputs, upgrades);
    polylet_kit::serve::serve(listener, routes, std::future::pending())
}

fn create_directory(path: &Path, mode: u32) -> Result<(), RunError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|source| RunError::Directory {
            path: path.to_owned(),
            source,
        })
}
