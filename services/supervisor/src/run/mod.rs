//! `polylet run`: the services as children of this process.

mod child;
mod health;
mod memory;
mod notify;
mod programs;
mod server;
mod sockets;
mod stack;
mod table;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::serve::Routes;
use polylet_kit::{CancellationToken, Exit, kept, listener, lock, report, telemetry};
use polylet_wire::supervisor::v1::supervisor_service_server::SupervisorServiceServer;
use tokio::sync::mpsc;

use crate::flags::Effective;
use crate::traces::Traces;

/// Why the stack did not start.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Unfit(#[from] polylet_machine::Unfit),
    #[error("making the directory {path}")]
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
    Stack(#[from] stack::StackError),
}

impl RunError {
    fn exit(&self) -> Exit {
        use sockets::SocketsError;
        match self {
            RunError::Lock(lock::LockError::Held { .. })
            | RunError::Sockets(SocketsError::Running(lock::LockError::Held { .. })) => {
                Exit::Locked
            }
            RunError::Programs(_) | RunError::Unfit(_) => Exit::Config,
            _ => Exit::Failed,
        }
    }
}

/// Runs the stack until it is told to stop.
pub(crate) fn main(effective: Effective) -> Exit {
    let config = &effective.config;
    // Before anything else opens a descriptor, or a service's socket could not be its third.
    let reserved = sockets::reserve();
    polylet_kit::memory::one_heap();
    let telemetry = telemetry::init(&telemetry::Setup {
        service: "supervisor",
        version: env!("CARGO_PKG_VERSION"),
        incarnation: "",
        node: &config.polylet.node_name,
        log: &config.polylet.log_level,
        spans_to: None,
    });
    let ended = reserved
        .map_err(|source| RunError::Sockets(source.into()))
        .and_then(|reserved| {
            let ended = start(&effective);
            drop(reserved);
            ended
        });
    drop(telemetry);
    match ended {
        Ok(()) => Exit::Ok,
        Err(error) => {
            tracing::error!("{}", report(&error));
            error.exit()
        }
    }
}

fn start(effective: &Effective) -> Result<(), RunError> {
    let config = &effective.config;
    let polylet = &config.polylet;
    let directory = polylet.run_directory.clone();
    polylet_machine::fit(&config.kubelet)?;
    make(&directory, 0o755)?;
    let own = directory.join("supervisor");
    make(&own, 0o700)?;
    let lock = directory.join("supervisor.lock");
    let _lock = lock::Lock::take(&lock, Duration::ZERO)?;
    // Not before the lock: another supervisor's services read theirs.
    if let Some(text) = &effective.text {
        kept::write(&config.path, text.as_bytes()).map_err(|source| RunError::Configuration {
            path: config.path.clone(),
            source,
        })?;
    }
    let programs = programs::find(polylet.bin_directory.as_deref())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        node = polylet.node_name,
        run_directory = %directory.display(),
        "starting"
    );
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let sockets = sockets::open(&directory)?;
    let listener = listener::bind(&directory.join("supervisor.sock"))
        .map_err(|error| RunError::Sockets(error.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .map_err(RunError::Runtime)?;
    runtime.block_on(async {
        let (inputs, incoming) = mpsc::unbounded_channel();
        let traces = Traces::start(&config.polylet.trace_ring);
        let server = server::Server {
            inputs: inputs.clone(),
            traces: traces.clone(),
            directory,
        };
        let mut routes = Routes::default();
        routes.add(traces.server());
        routes.add(SupervisorServiceServer::new(server));
        let stop = CancellationToken::new();
        let serving = polylet_kit::serve::serve(listener, routes, stop.clone().cancelled_owned());
        let stack = stack::run(stack::Setup {
            config,
            own,
            programs,
            sockets,
            inputs,
            incoming,
        });
        tokio::select! {
            ended = stack => ended.map_err(RunError::Stack),
            served = serving => served.map_err(RunError::Serve),
        }
    })
}

fn make(path: &Path, mode: u32) -> Result<(), RunError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|source| RunError::Directory {
            path: path.to_owned(),
            source,
        })
}
