//! Everything that the event loop reacts to.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::sync::oneshot;

use super::table::ServiceView;

/// An event about a service, by its index in the table. `instance` counts the processes of a service, so
/// that events of an earlier one are ignored.
pub(crate) enum Input {
    /// A process exited, or could not be started.
    Exited {
        at: usize,
        instance: u64,
        status: std::io::Result<ExitStatus>,
    },
    /// A process sent a message to its notify socket.
    Notified {
        at: usize,
        message: NotifyMessage,
        /// Its id, if the message tells.
        pid: Option<u32>,
    },
    /// A service stores a descriptor for its next process, or none of this name any more.
    Stored {
        at: usize,
        name: String,
        descriptor: Option<OwnedFd>,
    },
    /// The health of a process changed.
    Health {
        at: usize,
        instance: u64,
        serving: bool,
    },
    /// The delay before a restart is over.
    RestartDue { at: usize, instance: u64 },
    /// A request for the list of services.
    List(oneshot::Sender<Vec<ServiceView>>),
    /// A process that is to be restarted has had its time to stop.
    StopOverdue { at: usize, instance: u64 },
    /// A drained process has had its time to exit.
    PredecessorOverdue { at: usize, instance: u64 },
}

/// A message of a service on its notify socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotifyMessage {
    Ready,
    Stopping,
    /// The process has drained, and exits within this time.
    Drained(Duration),
    Watchdog,
    /// Why the process fails.
    Error(String),
}
