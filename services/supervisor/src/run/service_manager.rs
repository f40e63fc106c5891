//! Starts, watches, restarts and stops the services' processes.

pub(super) mod deadlines;
mod exit;
pub(super) mod handover;
mod predecessor;
mod stop;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::child::{self, ChildExit, ChildSpec};
use super::input::{Input, NotifyMessage};
use super::notify;
use super::own::OwnServerError;
use super::readiness::Readiness;
use super::sockets::ServiceSocket;
use super::stored_descriptors::StoredDescriptors;
use super::table::{RunningService, ServiceEntry, ServicePhase};
use super::{health, server};
use crate::backend::ChildRequest;
use crate::core::liveness::Liveness;
use crate::core::order::{SERVICES, start_order};
use crate::core::restart::RestartBackoff;
use crate::handover::Handover;
use crate::handover::descriptors::notify_of;

/// How long a group of services may take to drain and exit before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);

/// Condition of a service whose lock another process holds.
const LOCKED: &str = "ServiceLocked";

/// Why the services cannot be supervised.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceManagerError {
    #[error("opening the notify socket of {service}")]
    Notify {
        service: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("listening for signals")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Server(#[from] OwnServerError),
}

/// Owns the table of services.
pub(super) struct ServiceManager<'a> {
    config: &'a Path,
    run_directory: &'a Path,
    entries: Vec<ServiceEntry>,
    inputs: UnboundedSender<Input>,
    /// What the program before in this process has left.
    handover: Option<&'a Handover>,
    readiness: Readiness,
    stopping: bool,
}

impl<'a> ServiceManager<'a> {
    pub(super) fn new(
        config: &'a Path,
        run_directory: &'a Path,
        inputs: UnboundedSender<Input>,
        handover: Option<&'a Handover>,
    ) -> Self {
        Self {
            config,
            run_directory,
            entries: Vec::with_capacity(SERVICES.len()),
            inputs,
            handover,
            readiness: Readiness::new(),
            stopping: false,
        }
    }

    /// Adds a service and opens its notify socket in `directory`.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        program: PathBuf,
        socket: ServiceSocket,
        directory: &Path,
    ) -> Result<(), ServiceManagerError> {
        let failed = |source| ServiceManagerError::Notify {
            service: name,
            source,
        };
        let notify = notify::path(directory, name);
        let inherited = self.handover.and_then(|one| one.get(&notify_of(name)));
        let notify_socket = match inherited {
            Some(socket) => socket.into(),
            None => notify::open(&notify).map_err(failed)?,
        };
        let at = self.entries.len();
        let reader = notify_socket.try_clone().map_err(failed)?;
        let reading = notify::read(at, reader, self.inputs.clone());
        tokio::spawn(reading.map_err(failed)?);
        let mut entry = ServiceEntry {
            name,
            program,
            socket: socket.listener,
            notify,
            notify_socket,
            stored: StoredDescriptors::default(),
            phase: ServicePhase::Stopped,
            predecessors: Vec::new(),
            restarts: RestartBackoff::default(),
            last_exit: String::new(),
            failure: None,
            reported_error: String::new(),
            instance: 0,
            restart_requests: Vec::new(),
        };
        if let Some(locked) = socket.locked {
            entry.fail(LOCKED, locked);
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Starts all services that do not run and do not wait to be restarted. Their sockets are open, so callers
    /// need not wait for their callees.
    pub(super) fn start_all(&mut self) {
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.name).collect();
        for at in start_order(&names) {
            let phase = self.entries.get(at).map(|entry| &entry.phase);
            if matches!(phase, Some(ServicePhase::Stopped)) {
                self.start(at);
            }
        }
    }

    fn start(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.instance += 1;
        entry.reported_error.clear();
        for request in entry.restart_requests.drain(..) {
            // The requester may be gone.
            let _ = request.send(());
        }
        let instance = entry.instance;
        // Before the process exists, whose log may be ahead of this thread.
        let (now, started_at) = (Instant::now(), Timestamp::now());
        let started = child::start(&ChildSpec {
            service: entry.name,
            program: &entry.program,
            config: self.config,
            socket: &entry.socket,
            notify: &entry.notify,
            stored: &entry.stored,
        });
        let inputs = self.inputs.clone();
        let (child, exit) = match started {
            Ok(started) => started,
            Err(error) => {
                // Logged and retried like a process that exits at once.
                let status = Err(error);
                let _ = inputs.send(Input::Exited {
                    at,
                    instance,
                    status,
                });
                return;
            }
        };
        tracing::debug!(service = entry.name, pid = child.pid, "service started");
        self.supervise(at, exit, |channel, tasks| RunningService {
            child,
            since: now,
            started_at,
            serving: false,
            channel,
            tasks,
            liveness: Liveness::started(now.into_std()),
            expiry: None,
        });
    }

    /// Waits for the exit of a process and watches its health.
    fn supervise(
        &mut self,
        at: usize,
        exit: ChildExit,
        process: impl FnOnce(Channel, [JoinHandle<()>; 2]) -> RunningService,
    ) {
        let inputs = self.inputs.clone();
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let instance = entry.instance;
        let socket = server::service_socket(self.run_directory, entry.name);
        let channel = polylet_kit::channel::unix(&socket);
        let watch = health::watch(at, instance, channel.clone(), inputs.clone());
        let wait = tokio::spawn(async move {
            let status = exit.wait().await;
            let _ = inputs.send(Input::Exited {
                at,
                instance,
                status,
            });
        });
        entry.phase = ServicePhase::Running(process(channel, [wait, tokio::spawn(watch)]));
    }

    /// Whether `instance` is the service's present process, not an earlier one.
    fn is_current(&self, at: usize, instance: u64) -> bool {
        let entry = self.entries.get(at);
        entry.is_some_and(|entry| entry.instance == instance)
    }

    /// The process of a service, if it is running.
    fn running(&mut self, at: usize) -> Option<&mut RunningService> {
        self.entries.get_mut(at)?.running()
    }

    pub(super) fn handle_input(&mut self, input: Input) {
        match input {
            Input::Exited {
                at,
                instance,
                status,
            } => self.handle_exit(at, instance, status),
            Input::Notified { at, message, pid } => self.handle_notify(at, message, pid),
            Input::Stored {
                at,
                name,
                descriptor,
            } => self.store(at, name, descriptor),
            Input::Health {
                at,
                instance,
                serving,
            } if self.is_current(at, instance) => {
                if let Some(running) = self.running(at) {
                    running.serving = serving;
                }
            }
            Input::RestartDue { at, instance }
                if self.is_current(at, instance) && !self.stopping =>
            {
                self.start(at);
            }
            Input::List(response) => {
                let _ = response.send(self.entries.iter().map(ServiceEntry::view).collect());
            }
            Input::StopOverdue { at, instance } if self.is_current(at, instance) => {
                if let Some(running) = self.running(at) {
                    running.child.signal(Signal::KILL);
                }
            }
            Input::PredecessorOverdue { at, instance } => {
                if let Some(entry) = self.entries.get(at) {
                    predecessor::kill_overdue(entry, instance);
                }
            }
            // Of an earlier process.
            Input::Health { .. } | Input::RestartDue { .. } | Input::StopOverdue { .. } => {}
        }
        self.update_readiness();
    }

    fn handle_exit(&mut self, at: usize, instance: u64, status: std::io::Result<ExitStatus>) {
        if self.is_current(at, instance) {
            exit::handle_exit(self, at, status);
        } else if let Some(entry) = self.entries.get_mut(at) {
            let reason = status.map_or_else(|error| error.to_string(), child::describe_exit);
            predecessor::handle_exit(entry, instance, &reason);
        }
    }

    /// Answers a request of an upgrade.
    pub(super) fn handle_request(&mut self, request: ChildRequest) {
        match request {
            ChildRequest::States(response) => {
                let states = self.entries.iter().map(|entry| entry.view().state());
                let _ = response.send(states.collect());
            }
            ChildRequest::Restart { at, response } => exit::restart(self, at, response),
        }
        self.update_readiness();
    }

    /// Stores a descriptor for the next process of a service, or removes the one of this name.
    fn store(&mut self, at: usize, name: String, descriptor: Option<OwnedFd>) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let Some(descriptor) = descriptor else {
            entry.stored.remove(&name);
            return;
        };
        if !entry.stored.store(name, descriptor) {
            tracing::warn!(
                service = entry.name,
                "too many stored descriptors; ignoring one"
            );
        }
    }

    fn handle_notify(&mut self, at: usize, message: NotifyMessage, pid: Option<u32>) {
        if let NotifyMessage::Error(error) = message {
            if let Some(entry) = self.entries.get_mut(at) {
                entry.report_error(error);
            }
            return;
        }
        let Some(running) = self.running(at) else {
            return;
        };
        if pid.is_some_and(|pid| pid != running.child.pid) {
            return;
        }
        let now = Instant::now().into_std();
        running.liveness.ping(now);
        match message {
            NotifyMessage::Ready => running.liveness.ready(now),
            NotifyMessage::Stopping => running.serving = false,
            NotifyMessage::Drained(ends_within) => {
                predecessor::replace_drained(self, at, ends_within);
            }
            NotifyMessage::Watchdog | NotifyMessage::Error(_) => {}
        }
    }

    /// Tells systemd what has changed in readiness and state.
    fn update_readiness(&mut self) {
        if !self.stopping {
            let entries = self.entries.iter();
            self.readiness
                .update(entries.map(|entry| (entry.name, entry.is_serving())));
        }
    }
}

#[cfg(test)]
#[path = "service_manager_tests.rs"]
mod tests;
