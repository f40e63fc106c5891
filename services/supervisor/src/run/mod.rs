//! `polylet run`: the services as children of this process, or as units of systemd.

mod child;
mod effective_config;
mod event_loop;
mod health;
mod input;
mod memory;
mod notify;
mod process;
mod programs;
mod readiness;
mod server;
mod service_manager;
mod sockets;
mod systemd;
mod table;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::serve::{Routes, ServeError};
use polylet_kit::{Config, Exit, listener, lock, report, telemetry};
use polylet_wire::supervisor::v1::supervisor_service_server::SupervisorServiceServer;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedSender};

use effective_config::ConfigFile;
use input::Input;

use crate::backend::{Backend, BackendKind};
use crate::flags::EffectiveConfig;
use crate::systemctl::Systemctl;
use crate::traces::TraceStore;
use crate::upgrade::Upgrades;

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
    Services(#[from] service_manager::ServiceManagerError),
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
        service: "supervisor",
        version: env!("CARGO_PKG_VERSION"),
        incarnation: "",
        node: &config.polylet.node_name,
        log_level: &config.polylet.log_level,
        span_socket: None,
    });
    let result = reserved
        .map_err(|source| RunError::Sockets(source.into()))
        .and_then(|reserved| {
            let result = match backend {
                BackendKind::Child => start(&effective),
                BackendKind::Systemd => follow(&effective.config),
            };
            drop(reserved);
            result
        });
    drop(telemetry);
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => {
            tracing::error!(error = report(&error), "failed to run");
            error.exit()
        }
    }
}

fn start(effective: &EffectiveConfig) -> Result<(), RunError> {
    let config = &effective.config;
    let polylet = &config.polylet;
    let directory = polylet.run_directory.clone();
    polylet_machine::check(&config.kubelet)?;
    create_directory(&directory, 0o755)?;
    let own = directory.join("supervisor");
    create_directory(&own, 0o700)?;
    let lock = directory.join("supervisor.lock");
    let _lock = lock::Lock::acquire(&lock, Duration::ZERO)?;
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
        "starting services"
    );
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration warning");
    }
    polylet_kit::process_limits::apply(&config.kubelet);
    let sockets = sockets::open(&directory)?;
    let listener = listener::bind(&directory.join("supervisor.sock"))
        .map_err(|error| RunError::Sockets(error.into()))?;
    runtime()?.block_on(async {
        let (inputs, incoming) = mpsc::unbounded_channel();
        let (sender, requests) = mpsc::unbounded_channel();
        let backend = Backend::Child(sender);
        let upgrades = open_upgrades(config, backend, program_directory);
        let serving = serve(config, listener, inputs.clone(), upgrades);
        let services = event_loop::run(event_loop::ServiceSetup {
            config_file: &config_file.path,
            run_directory: &polylet.run_directory,
            directory: own,
            programs,
            sockets,
            inputs,
            incoming,
            requests,
        });
        tokio::select! {
            () = config_file.keep_trying() => Ok(()),
            stopped = services => stopped.map_err(RunError::Services),
            served = serving => served.map_err(RunError::Serve),
        }
    })
}

/// Follows the services that systemd runs.
fn follow(config: &Config) -> Result<(), RunError> {
    let polylet = &config.polylet;
    let directory = &polylet.run_directory;
    polylet_machine::check(&config.kubelet)?;
    create_directory(directory, 0o755)?;
    let _lock = lock::Lock::acquire(&directory.join("supervisor.lock"), lock::TIMEOUT)?;
    let listener = listener::inherit_or_bind(&directory.join("supervisor.sock"))
        .map_err(|error| RunError::Sockets(error.into()))?;
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
        let upgrades = open_upgrades(config, Backend::Systemd(Systemctl), program_directory);
        let serving = serve(config, listener, inputs.clone(), upgrades);
        tokio::select! {
            stopped = systemd::run(directory, inputs, incoming) => stopped.map_err(RunError::Services),
            served = serving => served.map_err(RunError::Serve),
        }
    })
}

fn runtime() -> Result<Runtime, RunError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::Runtime)
}

/// The upgrades of this node; one that was interrupted is continued. Needs the tokio runtime.
fn open_upgrades(config: &Config, backend: Backend, programs: PathBuf) -> Upgrades {
    let polylet = &config.polylet;
    let (run_directory, state_directory) = (&polylet.run_directory, &polylet.state_directory);
    let upgrades = Upgrades::open(backend, programs, run_directory, state_directory);
    upgrades.resume();
    upgrades
}

/// Serves the supervisor's socket. Needs the tokio runtime.
fn serve(
    config: &Config,
    listener: UnixListener,
    inputs: UnboundedSender<Input>,
    upgrades: Upgrades,
) -> impl Future<Output = Result<(), ServeError>> + use<> {
    let traces = TraceStore::start(&config.polylet.trace_ring);
    let server = server::Server {
        inputs,
        traces: traces.clone(),
        node_name: config.polylet.node_name.clone(),
        upgrades,
    };
    let mut routes = Routes::default();
    routes.add(traces.server());
    routes.add(SupervisorServiceServer::new(server));
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
