//! Starts, watches, restarts and stops the services' processes.

mod stop;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::Exit;
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::child::{self, ChildSpec};
use super::input::{Input, NotifyMessage};
use super::notify;
use super::readiness::Readiness;
use super::sockets::ServiceSocket;
use super::table::{RunningService, ServiceEntry, ServicePhase};
use super::{health, server};
use crate::backend::ChildRequest;
use crate::core::liveness::Liveness;
use crate::core::order::SERVICES;
use crate::core::restart::RestartBackoff;

/// How long a group of services may take to drain and exit before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// A watchdog timer that fires this late shows that the supervisor itself was not running.
const MAX_TIMER_DELAY: Duration = Duration::from_secs(1);

/// Condition of a service whose lock another process holds.
const LOCKED: &str = "ServiceLocked";
/// Condition of a service that exits.
const FAILING: &str = "ServiceFailing";

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
}

/// Owns the table of services.
pub(super) struct ServiceManager<'a> {
    config: &'a Path,
    run_directory: &'a Path,
    entries: Vec<ServiceEntry>,
    inputs: UnboundedSender<Input>,
    readiness: Readiness,
    stopping: bool,
}

impl<'a> ServiceManager<'a> {
    pub(super) fn new(
        config: &'a Path,
        run_directory: &'a Path,
        inputs: UnboundedSender<Input>,
    ) -> Self {
        Self {
            config,
            run_directory,
            entries: Vec::with_capacity(SERVICES.len()),
            inputs,
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
        let (notify, reader) =
            notify::open(directory, name).map_err(|source| ServiceManagerError::Notify {
                service: name,
                source,
            })?;
        let at = self.entries.len();
        tokio::spawn(notify::read(at, reader, self.inputs.clone()));
        let mut entry = ServiceEntry {
            name,
            program,
            socket: socket.listener,
            notify,
            phase: ServicePhase::Stopped,
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

    /// Starts all services. Their sockets are open, so callers need not wait for their callees.
    pub(super) fn start_all(&mut self) {
        for at in 0..self.entries.len() {
            self.start(at);
        }
    }

    fn start(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let socket = server::service_socket(self.run_directory, entry.name);
        entry.instance += 1;
        entry.reported_error.clear();
        for request in entry.restart_requests.drain(..) {
            // The requester may be gone.
            let _ = request.send(());
        }
        let instance = entry.instance;
        let started = child::start(&ChildSpec {
            service: entry.name,
            program: &entry.program,
            config: self.config,
            socket: &entry.socket,
            notify: &entry.notify,
        });
        let inputs = self.inputs.clone();
        let (child, mut process) = match started {
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
        let wait = tokio::spawn(async move {
            let status = process.wait().await;
            let _ = inputs.send(Input::Exited {
                at,
                instance,
                status,
            });
        });
        let channel = polylet_kit::channel::unix(&socket);
        let watch = tokio::spawn(health::watch(
            at,
            instance,
            channel.clone(),
            self.inputs.clone(),
        ));
        let since = Instant::now();
        entry.phase = ServicePhase::Running(RunningService {
            child,
            since,
            started_at: Timestamp::now(),
            serving: false,
            channel,
            tasks: [wait, watch],
            liveness: Liveness::started(since.into_std()),
            expiry: None,
        });
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
            } if self.is_current(at, instance) => self.handle_exit(at, status),
            Input::Notified { at, message, pid } => self.handle_notify(at, message, pid),
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
                self.signal(&[at], Signal::KILL);
            }
            // Of an earlier process.
            Input::Exited { .. }
            | Input::Health { .. }
            | Input::RestartDue { .. }
            | Input::StopOverdue { .. } => {}
        }
        self.update_readiness();
    }

    /// Answers a request of an upgrade.
    pub(super) fn handle_request(&mut self, request: ChildRequest) {
        match request {
            ChildRequest::States(response) => {
                let states = self.entries.iter().map(|entry| entry.view().state());
                let _ = response.send(states.collect());
            }
            ChildRequest::Restart { at, response } => self.restart(at, response),
        }
        self.update_readiness();
    }

    /// Stops a service for its restart, which follows its exit. One that waits to be restarted starts now.
    fn restart(&mut self, at: usize, response: oneshot::Sender<()>) {
        let inputs = self.inputs.clone();
        let Some(entry) = self.entries.get_mut(at).filter(|_| !self.stopping) else {
            return;
        };
        let instance = entry.instance;
        let is_running = entry.is_running();
        entry.restart_requests.push(response);
        if !is_running {
            self.start(at);
            return;
        }
        self.signal(&[at], Signal::TERM);
        tokio::spawn(async move {
            tokio::time::sleep(STOP_TIMEOUT).await;
            let _ = inputs.send(Input::StopOverdue { at, instance });
        });
    }

    fn handle_exit(&mut self, at: usize, status: std::io::Result<ExitStatus>) {
        let stopping = self.stopping;
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        let mut uptime = Duration::ZERO;
        let mut pid = 0;
        let mut expiry = None;
        if let ServicePhase::Running(running) =
            std::mem::replace(&mut entry.phase, ServicePhase::Stopped)
        {
            running.tasks.iter().for_each(|task| task.abort());
            // One that never became ready does not end a series of failures, however long it took.
            if running.liveness.has_been_ready() {
                uptime = running.since.elapsed();
            }
            pid = running.child.pid;
            expiry = running.expiry;
        }
        let locked = matches!(&status, Ok(status) if status.code() == Some(Exit::Locked as i32));
        let reason = match status {
            Ok(status) => child::describe_exit(status),
            Err(error) => format!("failed to start: {error}"),
        };
        entry.last_exit.clone_from(&reason);
        if stopping {
            tracing::info!(service = entry.name, pid, reason, "service exited");
            return;
        }
        entry.forget_failure(uptime);
        if !entry.restart_requests.is_empty() {
            tracing::info!(
                service = entry.name,
                pid,
                reason,
                "service exited; restarting it as requested"
            );
            self.start(at);
            return;
        }
        match expiry {
            Some(expiry) => entry.fail(expiry.condition(), expiry.describe()),
            None if locked => entry.fail(LOCKED, "another process holds its lock".to_owned()),
            None => entry.fail(FAILING, reason.clone()),
        }
        let delay = entry.restarts.next_delay(uptime);
        entry.phase = ServicePhase::BackOff;
        tracing::warn!(
            service = entry.name,
            pid,
            reason,
            retry_in = ?delay,
            "service exited; restarting"
        );
        let (instance, inputs) = (entry.instance, self.inputs.clone());
        if delay.is_zero() {
            let _ = inputs.send(Input::RestartDue { at, instance });
            return;
        }
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let _ = inputs.send(Input::RestartDue { at, instance });
        });
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

    /// When [`ServiceManager::handle_deadlines`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let both = [self.process_deadline(), self.readiness.deadline()];
        both.into_iter().flatten().min()
    }

    /// Kills the services that have missed their deadline, and stops waiting for those that are not ready.
    pub(super) fn handle_deadlines(&mut self) {
        let now = Instant::now();
        if self.process_deadline().is_some_and(|at| at <= now) {
            self.kill_unresponsive();
        }
        self.update_readiness();
    }

    /// The earliest deadline of a service's process.
    fn process_deadline(&self) -> Option<Instant> {
        let deadline = |entry: &ServiceEntry| match &entry.phase {
            ServicePhase::Running(running) => running.liveness.deadline(),
            _ => None,
        };
        let earliest = self.entries.iter().filter_map(deadline).min();
        earliest.map(Instant::from_std)
    }

    /// Kills the services that have missed their deadline.
    fn kill_unresponsive(&mut self) {
        let now = Instant::now();
        if self
            .process_deadline()
            .is_some_and(|at| now.duration_since(at) > MAX_TIMER_DELAY)
        {
            // The supervisor itself was delayed: messages of the services are still unread.
            for running in self.entries.iter_mut().filter_map(ServiceEntry::running) {
                running.liveness.postpone(now.into_std());
            }
            return;
        }
        for entry in &mut self.entries {
            entry.kill_if_expired(now);
        }
    }
}

#[cfg(test)]
#[path = "service_manager_tests.rs"]
mod tests;
