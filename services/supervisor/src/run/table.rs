//! What is known of each service's process.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::child::{Running, WATCHDOG};
use crate::core::restart::Restarts;

/// Where a service stands.
pub(super) enum Phase {
    /// A process is there; it has or has not said that it is ready, and serves or not.
    Up(Up),
    /// Waits to be started again.
    BackOff,
    /// Not to be started (again).
    Stopped,
}

/// A living process.
pub(super) struct Up {
    pub(super) child: Running,
    pub(super) since: Instant,
    pub(super) started_at: Timestamp,
    pub(super) ready: bool,
    pub(super) serving: bool,
    /// Its tasks: waiting for its end, watching its health.
    pub(super) tasks: [JoinHandle<()>; 2],
    /// When it is stuck, should it not ping before.
    pub(super) stuck_at: Instant,
}

impl Up {
    /// It is alive now.
    pub(super) fn pinged(&mut self) {
        self.stuck_at = Instant::now() + WATCHDOG;
    }
}

/// One service.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) socket: UnixListener,
    pub(super) notify: PathBuf,
    pub(super) phase: Phase,
    pub(super) restarts: Restarts,
    pub(super) last_exit: String,
    /// Counts its processes, so that word of an earlier one is not taken for the present one's.
    pub(super) life: u64,
}

/// A service as `polylet status` is told of it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) name: &'static str,
    pub(super) health: &'static str,
    pub(super) pid: u32,
    pub(super) restarts: u32,
    pub(super) started_at: Option<Timestamp>,
    pub(super) last_exit: String,
}

impl Entry {
    pub(super) fn up(&mut self) -> Option<&mut Up> {
        match &mut self.phase {
            Phase::Up(up) => Some(up),
            _ => None,
        }
    }

    /// Whether the process has said that it is ready and answers that it serves.
    pub(super) fn is_serving(&self) -> bool {
        matches!(&self.phase, Phase::Up(up) if up.ready && up.serving)
    }

    pub(super) fn seen(&self) -> Seen {
        let (health, pid, started_at) = match &self.phase {
            Phase::Up(up) => {
                let health = match (up.ready, up.serving) {
                    (true, true) => "SERVING",
                    (true, false) => "NOT_SERVING",
                    (false, _) => "STARTING",
                };
                (health, up.child.pid, Some(up.started_at))
            }
            Phase::BackOff => ("BACKOFF", 0, None),
            Phase::Stopped => ("STOPPED", 0, None),
        };
        let (restarts, last_exit) = (self.restarts.total(), self.last_exit.clone());
        Seen {
            name: self.name,
            health,
            pid,
            restarts,
            started_at,
            last_exit,
        }
    }
}
