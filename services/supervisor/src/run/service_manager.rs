//! Starts, watches, restarts and stops the services' processes.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::Exit;
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::child::{self, ChildSpec};
use super::input::Input;
use super::input::NotifyMessage;
use super::notify;
use super::process;
use super::sockets::ServiceSocket;
use super::table::{RunningService, ServiceEntry, ServicePhase};
use super::{health, server};
use crate::core::liveness::{Expiry, Liveness};
use crate::core::order::{SERVICES, stop_groups};
use crate::core::restart::RestartBackoff;

/// How long a group of services may take to drain and exit before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// How long to wait for killed services before the supervisor exits without them.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
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
    started: Instant,
    /// All services were serving once, which was logged and notified.
    ready: bool,
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
            started: Instant::now(),
            ready: false,
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
        let socket = server::service_socket(self.run_directory, self.entries[at].name);
        let entry = &mut self.entries[at];
        entry.instance += 1;
        entry.reported_error.clear();
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

    pub(super) fn handle_input(&mut self, input: Input) {
        match input {
            Input::Exited {
                at,
                instance,
                status,
            } if self.entries[at].instance == instance => self.handle_exit(at, status),
            Input::Notified { at, message, pid } => self.handle_notify(at, message, pid),
            Input::Health {
                at,
                instance,
                serving,
            } if self.entries[at].instance == instance => {
                if let Some(running) = self.entries[at].running() {
                    running.serving = serving;
                }
                self.notify_when_ready();
            }
            Input::RestartDue { at, instance }
                if self.entries[at].instance == instance && !self.stopping =>
            {
                self.start(at);
            }
            Input::List(response) => {
                let _ = response.send(self.entries.iter().map(ServiceEntry::view).collect());
            }
            // Of an earlier process.
            Input::Exited { .. } | Input::Health { .. } | Input::RestartDue { .. } => {}
        }
    }

    fn handle_exit(&mut self, at: usize, status: std::io::Result<ExitStatus>) {
        let stopping = self.stopping;
        let entry = &mut self.entries[at];
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
            self.entries[at].report_error(error);
            return;
        }
        let Some(running) = self.entries[at].running() else {
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
        self.notify_when_ready();
    }

    /// Once all services are serving, logs it and notifies systemd.
    fn notify_when_ready(&mut self) {
        if self.ready || !self.entries.iter().all(ServiceEntry::is_serving) {
            return;
        }
        self.ready = true;
        tracing::info!(
            count = self.entries.len(),
            duration = ?self.started.elapsed(),
            "all services are serving"
        );
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    /// The earliest deadline of a service's process.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadline = |entry: &ServiceEntry| match &entry.phase {
            ServicePhase::Running(running) => running.liveness.deadline(),
            _ => None,
        };
        let earliest = self.entries.iter().filter_map(deadline).min();
        earliest.map(Instant::from_std)
    }

    /// Kills the services that have missed their deadline.
    pub(super) fn kill_unresponsive(&mut self) {
        let now = Instant::now();
        if self
            .deadline()
            .is_some_and(|at| now.duration_since(at) > MAX_TIMER_DELAY)
        {
            // The supervisor itself was delayed: messages of the services are still unread.
            for running in self.entries.iter_mut().filter_map(ServiceEntry::running) {
                running.liveness.postpone(now.into_std());
            }
            return;
        }
        for entry in &mut self.entries {
            let service = entry.name;
            let Some(running) = entry.running() else {
                continue;
            };
            let pid = running.child.pid;
            match running.liveness.expire(now.into_std()) {
                None => {}
                Some(Expiry::NotExited) => {
                    let state = process::describe_unkillable(pid);
                    tracing::error!(
                        service,
                        state,
                        "killed service has not exited; waiting for it"
                    );
                }
                Some(expiry) => {
                    let reason = expiry.describe();
                    tracing::error!(service, pid, reason, "service is unresponsive; killing it");
                    running.child.signal(Signal::KILL);
                    running.expiry = Some(expiry);
                }
            }
        }
    }

    /// Stops the services, callers first, each group with a timeout.
    pub(super) async fn stop_all(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        self.stopping = true;
        for group in stop_groups(&SERVICES) {
            self.signal(&group, Signal::TERM);
            if tokio::time::timeout(STOP_TIMEOUT, self.wait_for_exit(&group, incoming))
                .await
                .is_ok()
            {
                continue;
            }
            for at in &group {
                if self.entries[*at].running().is_some() {
                    let service = self.entries[*at].name;
                    tracing::warn!(service, "service did not stop in time; killing it");
                }
            }
            self.kill(&group, incoming).await;
        }
    }

    /// Kills all services that are still running.
    pub(super) async fn kill_all(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        let all: Vec<usize> = (0..self.entries.len()).collect();
        self.kill(&all, incoming).await;
    }

    async fn kill(&mut self, group: &[usize], incoming: &mut UnboundedReceiver<Input>) {
        self.signal(group, Signal::KILL);
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.wait_for_exit(group, incoming)).await;
    }

    fn signal(&mut self, group: &[usize], signal: Signal) {
        for at in group {
            if let Some(running) = self.entries[*at].running() {
                running.child.signal(signal);
            }
        }
    }

    async fn wait_for_exit(&mut self, group: &[usize], incoming: &mut UnboundedReceiver<Input>) {
        while group.iter().any(|at| self.entries[*at].running().is_some()) {
            match incoming.recv().await {
                Some(input) => self.handle_input(input),
                None => return,
            }
        }
    }
}

#[cfg(test)]
#[path = "service_manager_tests.rs"]
mod tests;
