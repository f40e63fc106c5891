//! The event loop that owns the services' processes.

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::input::Input;
use super::service_manager::{ServiceManager, ServiceManagerError};
use super::sockets::ServiceSocket;
use crate::backend::ChildRequest;
use crate::core::order::SERVICES;

/// What the services are started with.
pub(super) struct ServiceSetup<'a> {
    /// The configuration file that services read.
    pub(super) config_file: &'a Path,
    pub(super) run_directory: &'a Path,
    /// The supervisor's own directory, for notify sockets.
    pub(super) directory: PathBuf,
    pub(super) programs: Vec<PathBuf>,
    pub(super) sockets: Vec<ServiceSocket>,
    pub(super) inputs: UnboundedSender<Input>,
    pub(super) incoming: UnboundedReceiver<Input>,
    pub(super) requests: UnboundedReceiver<ChildRequest>,
}

/// Starts the services, restarts those that exit, and on SIGTERM or SIGINT stops them, callers first.
pub(super) async fn run(setup: ServiceSetup<'_>) -> Result<(), ServiceManagerError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServiceManagerError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServiceManagerError::Signals)?;
    let ServiceSetup {
        config_file,
        run_directory,
        directory,
        programs,
        sockets,
        inputs,
        mut incoming,
        mut requests,
    } = setup;
    let mut manager = ServiceManager::new(config_file, run_directory, inputs);
    for ((service, program), socket) in SERVICES.iter().zip(programs).zip(sockets) {
        manager.add(service.name, program, socket, &directory)?;
    }
    manager.start_all();
    // From the thread of this loop: a stuck process is silent, and systemd replaces it.
    let watchdog = tokio::spawn(polylet_kit::notify::watchdog());
    loop {
        let deadline = manager.deadline();
        tokio::select! {
            Some(input) = incoming.recv() => manager.handle_input(input),
            Some(request) = requests.recv() => manager.handle_request(request),
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)),
                if deadline.is_some() => manager.handle_deadlines(),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("stopping services; containers keep running");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tokio::select! {
        () = manager.stop_all(&mut incoming) => {}
        // A second signal stops without waiting.
        _ = interrupt.recv() => manager.kill_all(&mut incoming).await,
        _ = terminate.recv() => manager.kill_all(&mut incoming).await,
    }
    watchdog.abort();
    tracing::info!("stopped");
    Ok(())
}
