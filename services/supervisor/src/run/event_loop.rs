//! The event loop that owns the services' processes.

use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::input::Input;
use super::own::{OwnEvent, OwnProcess};
use super::service_manager::{
    ServiceManager, ServiceManagerError, deadlines, handover as handover_of,
};
use super::sockets::ServiceSocket;
use crate::backend::ChildRequest;
use crate::core::order::SERVICES;
use crate::handover::{Handover, signals};

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
    /// What the program before in this process has left.
    pub(super) handover: Option<&'a Handover>,
    pub(super) own: OwnProcess,
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
        handover,
        mut own,
    } = setup;
    let mut manager = ServiceManager::new(config_file, run_directory, inputs, handover);
    for ((service, program), socket) in SERVICES.iter().zip(programs).zip(sockets) {
        manager.add(service.name, program, socket, &directory)?;
    }
    handover_of::adopt_all(&mut manager);
    if let Some(handover) = handover {
        handover.complete();
        signals::unblock();
    }
    manager.start_all();
    // From the thread of this loop: a stuck process is silent, and systemd replaces it.
    let watchdog = tokio::spawn(polylet_kit::notify::watchdog());
    loop {
        let deadline = deadlines::deadline(&manager);
        tokio::select! {
            Some(input) = incoming.recv() => manager.handle_input(input),
            Some(request) = requests.recv() => manager.handle_request(request),
            event = own.next() => match event {
                OwnEvent::State(response) => {
                    let _ = response.send(handover_of::state(&manager));
                }
                OwnEvent::Replace(request) => {
                    // What has been received belongs to the state.
                    while let Ok(input) = incoming.try_recv() {
                        manager.handle_input(input);
                    }
                    let state = handover_of::state(&manager);
                    own.replace(request, state, handover_of::descriptors(&manager))?;
                }
                OwnEvent::Failed(error) => return Err(error.into()),
            },
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)),
                if deadline.is_some() => deadlines::handle_deadlines(&mut manager),
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
    own.flush_spans().await;
    watchdog.abort();
    tracing::info!("stopped");
    Ok(())
}
