//! The state of each service's process.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::child::{ChildHandle, WATCHDOG};
use crate::core::restart::RestartBackoff;

/// The phase of a service.
pub(super) enum ServicePhase {
    /// Its process runs, ready or not.
    Running(RunningService),
    /// It waits to be restarted.
    BackOff,
    /// It is not started, or stopped for good.
    Stopped,
}

/// A running process.
pub(super) struct RunningService {
    pub(super) child: ChildHandle,
    pub(super) since: Instant,
    pub(super) started_at: Timestamp,
    /// It has sent `READY=1`.
    pub(super) ready: bool,
    /// Its health check reports `SERVING`.
    pub(super) serving: bool,
    /// Tasks that wait for its exit and watch its health.
    pub(super) tasks: [JoinHandle<()>; 2],
    /// When the watchdog expires without a ping.
    pub(super) watchdog_deadline: Instant,
}

impl RunningService {
    pub(super) fn reset_watchdog(&mut self) {
        self.watchdog_deadline = Instant::now() + WATCHDOG;
    }

    /// Whether a ready service has missed its watchdog ping.
    pub(super) fn watchdog_expired(&self, now: Instant) -> bool {
        self.ready && self.watchdog_deadline <= now
    }
}

/// One service.
pub(super) struct ServiceEntry {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) socket: UnixListener,
    pub(super) notify: PathBuf,
    pub(super) phase: ServicePhase,
    pub(super) restarts: RestartBackoff,
    pub(super) last_exit: String,
    /// Number of the current process, so that events of an earlier one are ignored.
    pub(super) instance: u64,
}

/// A service as `polylet status` shows it.
#[derive(Debug, Clone)]
pub(super) struct ServiceView {
    pub(super) name: &'static str,
    pub(super) health: &'static str,
    pub(super) pid: u32,
    pub(super) restarts: u32,
    pub(super) started_at: Option<Timestamp>,
    pub(super) last_exit: String,
}

impl ServiceEntry {
    pub(super) fn running(&mut self) -> Option<&mut RunningService> {
        match &mut self.phase {
            ServicePhase::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Whether the process is ready and reports that it is serving.
    pub(super) fn is_serving(&self) -> bool {
        matches!(&self.phase, ServicePhase::Running(running) if running.ready && running.serving)
    }

    pub(super) fn view(&self) -> ServiceView {
        let (health, pid, started_at) = match &self.phase {
            ServicePhase::Running(running) => {
                let health = match (running.ready, running.serving) {
                    (true, true) => "SERVING",
                    (true, false) => "NOT_SERVING",
                    (false, _) => "STARTING",
                };
                (health, running.child.pid, Some(running.started_at))
            }
            ServicePhase::BackOff => ("BACKOFF", 0, None),
            ServicePhase::Stopped => ("STOPPED", 0, None),
        };
        ServiceView {
            name: self.name,
            health,
            pid,
            restarts: self.restarts.total(),
            started_at,
            last_exit: self.last_exit.clone(),
        }
    }
}
