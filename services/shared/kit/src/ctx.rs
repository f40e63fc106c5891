use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::conditions::HealthConditions;
use crate::config::Config;
use crate::descriptor::ServiceDescriptor;
use crate::listener::{self, ListenError};
use crate::notices::Notices;
use crate::peers::{Peer, Peers};
use crate::ports::{InheritedPorts, PortError};
use crate::start_gate::StartGate;

/// The context of a service: configuration, peers, directories and tasks.
#[derive(Clone)]
pub struct Ctx {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) descriptor: &'static ServiceDescriptor,
    pub(crate) config: Config,
    pub(crate) incarnation: String,
    pub(crate) started_at: Timestamp,
    pub(crate) run_dir: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) peers: Peers,
    pub(crate) ports: InheritedPorts,
    pub(crate) notices: Notices,
    pub(crate) drain: CancellationToken,
    pub(crate) background: TaskTracker,
    pub(crate) start_gate: StartGate,
    pub(crate) failed: mpsc::UnboundedSender<String>,
}

impl Ctx {
    pub(crate) fn new(inner: Inner) -> Ctx {
        Ctx {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The configuration as read at process start.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Identifies this process instance; new at each start.
    pub fn incarnation(&self) -> &str {
        &self.inner.incarnation
    }

    /// The name of this node.
    pub fn node_name(&self) -> &str {
        &self.inner.config.polylet.node_name
    }

    /// Directory for facts about running containers, which a reboot may delete. Exists, mode 0700.
    pub fn run_dir(&self) -> &Path {
        &self.inner.run_dir
    }

    /// Directory for commitments that outlive a reboot. Exists, mode 0700.
    pub fn state_dir(&self) -> &Path {
        &self.inner.state_dir
    }

    /// A peer in the descriptor's `calls`.
    ///
    /// # Panics
    /// When the descriptor does not declare it: the call graph is checked by the descriptors, so an
    /// undeclared call is a programming error that must show at the first start.
    #[expect(
        clippy::panic,
        reason = "an undeclared call is a programming error, which no input can cause"
    )]
    pub fn peer(&self, service: &'static str) -> Peer {
        match self.inner.peers.get(service) {
            Some(peer) => peer,
            None => panic!(
                "{} calls {service} without declaring it",
                self.inner.descriptor.service
            ),
        }
    }

    /// Listens on a TCP port, which `name` distinguishes from others of the service. The service manager holds
    /// the socket while the service restarts. Needs the tokio runtime.
    ///
    /// # Errors
    /// When the address is in use or not permitted.
    pub fn bind_port(
        &self,
        name: &'static str,
        address: SocketAddr,
    ) -> Result<TcpListener, PortError> {
        self.inner.ports.bind(name, address)
    }

    /// The Unix socket at `path` that a former process of the service has bound with [`Ctx::bind_unix`].
    pub fn inherited_unix(&self, name: &str, path: &Path) -> Option<UnixListener> {
        self.inner.ports.inherited_unix(name, path)
    }

    /// Listens on a Unix socket besides the service's own, whose `name` ends with `.sock`. The service manager holds
    /// it while the service restarts. Its directory must exist.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub fn bind_unix(&self, name: &'static str, path: &Path) -> Result<UnixListener, ListenError> {
        let listener = listener::bind(path)?;
        self.inner.ports.store_unix(name, &listener);
        Ok(listener)
    }

    /// Publishes notices, which status-reporter turns into events.
    pub fn notices(&self) -> &Notices {
        &self.inner.notices
    }

    /// What impairs this service at the moment, for `polylet status`.
    pub fn conditions(&self) -> HealthConditions {
        HealthConditions::of_process()
    }

    /// Cancelled when draining starts: no new side effects after that.
    pub fn drain(&self) -> CancellationToken {
        self.inner.drain.clone()
    }

    /// A task that runs as long as the process, from when it serves: nothing that comes before may wait for
    /// it. One that panics, or returns before the drain, ends the process with an error that names it.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        let (drain, failed) = (self.inner.drain.clone(), self.inner.failed.clone());
        let turn = self.inner.start_gate.turn();
        let task = AssertUnwindSafe(task).catch_unwind();
        // An async block would have room for the task twice: as what it captures, and as what it awaits.
        tokio::task::spawn_local(turn.then(move |()| task).map(move |result| {
            let ended = match result {
                Err(_) => format!("task {name} panicked"),
                Ok(()) if drain.is_cancelled() => return,
                Ok(()) => format!("task {name} ended"),
            };
            // The receiver is gone only when the process is ending.
            let _ = failed.send(ended);
        }));
    }

    /// Starts short-lived work, which a drain waits for until its deadline. A panic ends the process.
    pub fn background(&self, name: &'static str, work: impl Future<Output = ()> + 'static) {
        let failed = self.inner.failed.clone();
        let work = AssertUnwindSafe(work).catch_unwind();
        self.inner.background.spawn_local(work.map(move |result| {
            if result.is_err() {
                let _ = failed.send(format!("work {name} panicked"));
            }
        }));
    }
}
