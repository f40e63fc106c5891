//! The state of each service's process.

use std::borrow::Cow;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;

use jiff::Timestamp;
use polylet_wire::lifecycle::v1::HealthCondition;
use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Channel;

use super::child::ChildHandle;
use super::process;
use super::stored_descriptors::StoredDescriptors;
use crate::backend::ServiceState;
use crate::core::liveness::{Expiry, Liveness};
use crate::core::restart::{RESET_AFTER, RestartBackoff};
use crate::core::unit_state::UnitPhase;

/// The phase of a service.
pub(super) enum ServicePhase {
    /// Its process runs, ready or not.
    Running(RunningService),
    /// It waits to be restarted.
    BackOff {
        /// When it is.
        due: Instant,
    },
    /// It is not started, or stopped for good.
    Stopped,
}

/// A running process.
pub(super) struct RunningService {
    pub(super) child: ChildHandle,
    pub(super) since: Instant,
    pub(super) started_at: Timestamp,
    /// Its health check reports `SERVING`.
    pub(super) serving: bool,
    /// The connection to it, open for as long as it runs.
    pub(super) channel: Channel,
    /// Tasks that wait for its exit and watch its health.
    pub(super) tasks: [JoinHandle<()>; 2],
    pub(super) liveness: Liveness,
    /// Why it was killed.
    pub(super) expiry: Option<Expiry>,
}

impl RunningService {
    /// Whether it has been ready, and running long enough for earlier failures to be over.
    fn is_stable(&self) -> bool {
        self.liveness.is_ready() && self.since.elapsed() >= RESET_AFTER
    }
}

/// A process that has drained, and is followed by another one.
pub(super) struct Predecessor {
    pub(super) child: ChildHandle,
    /// The number that it had among the processes of the service.
    pub(super) instance: u64,
    /// When it is killed.
    pub(super) due: Instant,
}

/// Why a service does not run as it should.
#[derive(Debug)]
pub(super) struct ServiceFailure {
    /// Reason of the condition.
    pub(super) reason: Cow<'static, str>,
    /// How its process ended, or why it was killed.
    pub(super) message: String,
    /// The error that the process itself reported.
    pub(super) detail: String,
    pub(super) since: Timestamp,
}

/// One service.
pub(super) struct ServiceEntry {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) socket: UnixListener,
    pub(super) notify: PathBuf,
    /// A copy of the notify socket, for the next program.
    pub(super) notify_socket: UnixDatagram,
    /// What its next process inherits beside the socket.
    pub(super) stored: StoredDescriptors,
    pub(super) phase: ServicePhase,
    /// Earlier processes that have drained and are still there, the oldest first.
    pub(super) predecessors: Vec<Predecessor>,
    pub(super) restarts: RestartBackoff,
    pub(super) last_exit: String,
    /// Shown until a process has run for a while.
    pub(super) failure: Option<ServiceFailure>,
    /// The error that the current process has reported.
    pub(super) reported_error: String,
    /// Number of the current process, so that events of an earlier one are ignored.
    pub(super) instance: u64,
    /// Requests to restart it that wait for its exit.
    pub(super) restart_requests: Vec<oneshot::Sender<()>>,
}

/// A service as `polylet status` shows it.
#[derive(Debug, Clone)]
pub(crate) struct ServiceView {
    pub(super) name: &'static str,
    pub(super) health: &'static str,
    pub(super) pid: u32,
    pub(super) restarts: u32,
    pub(super) started_at: Option<Timestamp>,
    pub(super) last_exit: String,
    pub(super) conditions: Vec<HealthCondition>,
    /// The connection to its process, once that is ready.
    pub(super) channel: Option<Channel>,
}

impl ServiceView {
    /// What the service manager knows of the service.
    pub(crate) fn state(&self) -> ServiceState {
        ServiceState {
            service: self.name,
            phase: match self.health {
                "STARTING" => UnitPhase::Starting,
                "BACKOFF" => UnitPhase::BackOff,
                "STOPPED" => UnitPhase::Stopped,
                _ => UnitPhase::Running,
            },
            pid: (self.pid != 0).then_some(self.pid),
            started_at: self.started_at,
            restarts: self.restarts,
            last_exit: self.last_exit.clone(),
        }
    }
}

impl ServiceEntry {
    pub(super) fn running(&mut self) -> Option<&mut RunningService> {
        match &mut self.phase {
            ServicePhase::Running(running) => Some(running),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, ServicePhase::Running(_))
    }

    /// Whether no process of it is left, an earlier one included.
    pub(super) fn has_ended(&self) -> bool {
        !self.is_running() && self.predecessors.is_empty()
    }

    /// Kills its process if that has missed a deadline.
    pub(super) fn kill_if_expired(&mut self, now: Instant) {
        let service = self.name;
        let Some(running) = self.running() else {
            return;
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

    /// Whether the process is ready and reports that it is serving.
    pub(super) fn is_serving(&self) -> bool {
        matches!(&self.phase, ServicePhase::Running(running) if running.liveness.is_ready() && running.serving)
    }

    pub(super) fn view(&self) -> ServiceView {
        let mut channel = None;
        let (health, pid, started_at) = match &self.phase {
            ServicePhase::Running(running) => {
                channel = running.liveness.is_ready().then(|| running.channel.clone());
                let health = match (running.liveness.is_ready(), running.serving) {
                    (true, true) => "SERVING",
                    (true, false) => "NOT_SERVING",
                    (false, _) => "STARTING",
                };
                (health, running.child.pid, Some(running.started_at))
            }
            ServicePhase::BackOff { .. } => ("BACKOFF", 0, None),
            ServicePhase::Stopped => ("STOPPED", 0, None),
        };
        ServiceView {
            name: self.name,
            health,
            pid,
            restarts: self.restarts.total(),
            started_at,
            last_exit: self.last_exit.clone(),
            conditions: self.conditions(),
            channel,
        }
    }

    /// Records why the service does not run; an earlier failure that is not over keeps its time.
    pub(super) fn fail(&mut self, reason: &'static str, message: String) {
        let lasts = |failure: &ServiceFailure| failure.since;
        let since = self.failure.as_ref().map_or_else(Timestamp::now, lasts);
        let detail = std::mem::take(&mut self.reported_error);
        self.failure = Some(ServiceFailure {
            reason: Cow::Borrowed(reason),
            message,
            detail,
            since,
        });
    }

    /// An error that its process reported, possibly just before it exited.
    pub(super) fn report_error(&mut self, error: String) {
        match (&self.phase, &mut self.failure) {
            (ServicePhase::BackOff { .. }, Some(failure)) => failure.detail = error,
            _ => self.reported_error = error,
        }
    }

    fn conditions(&self) -> Vec<HealthCondition> {
        let mut conditions = Vec::new();
        let condition = |reason: &str, message: String, since| HealthCondition {
            reason: reason.to_owned(),
            object: String::new(),
            message,
            since: Some(polylet_wire::time::to_wire(since)),
        };
        let running = match &self.phase {
            ServicePhase::Running(running) => Some(running),
            _ => None,
        };
        if let Some(failure) = &self.failure
            && !running.is_some_and(RunningService::is_stable)
        {
            let message = match failure.detail.as_str() {
                "" => failure.message.clone(),
                detail => format!("{}: {detail}", failure.message),
            };
            conditions.push(condition(&failure.reason, message, failure.since));
        }
        if let Some(running) = running.filter(|running| running.liveness.is_unkillable()) {
            let message = format!(
                "{}; restarting it when it has exited",
                process::describe_unkillable(running.child.pid)
            );
            conditions.push(condition("ServiceNotExiting", message, running.started_at));
        }
        conditions
    }

    /// Forgets a failure that was over when the process, which ran for `uptime`, exited.
    pub(super) fn forget_failure(&mut self, uptime: std::time::Duration) {
        if uptime >= RESET_AFTER {
            self.failure = None;
        }
    }
}
