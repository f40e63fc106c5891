//! The one task that owns the services' processes.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::Config;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::child::{self, Start};
use super::notify::{self, Said};
use super::table::{Entry, Phase, Seen, Up};
use super::{health, server};
use crate::core::order::{SERVICES, stop_groups};
use crate::core::restart::Restarts;

/// A group of services may take this long to drain and end; then it is killed.
const STOP_FOR: Duration = Duration::from_secs(12);
/// The kernel takes this long at most to end what was killed.
const KILL_FOR: Duration = Duration::from_secs(2);

/// Everything that can happen.
pub(super) enum Input {
    /// A process ended.
    Ended {
        at: usize,
        life: u64,
        status: std::io::Result<ExitStatus>,
    },
    /// A process said something to its notify socket.
    Said {
        at: usize,
        said: Said,
        pid: Option<u32>,
    },
    /// A process's health changed.
    Health { at: usize, life: u64, serving: bool },
    /// The pause before a restart is over.
    Due { at: usize, life: u64 },
    /// Somebody asks how things are.
    List(oneshot::Sender<Vec<Seen>>),
}

/// Why the stack cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum StackError {
    #[error("opening the notify socket of {service}")]
    Notify {
        service: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("listening for signals")]
    Signals(#[source] std::io::Error),
}

/// What the stack is made of.
pub(super) struct Setup<'a> {
    pub(super) config: &'a Config,
    pub(super) own: PathBuf,
    pub(super) programs: Vec<PathBuf>,
    pub(super) sockets: Vec<UnixListener>,
    pub(super) inputs: UnboundedSender<Input>,
    pub(super) incoming: UnboundedReceiver<Input>,
}

struct Stack<'a> {
    config: &'a Path,
    directory: &'a Path,
    entries: Vec<Entry>,
    inputs: UnboundedSender<Input>,
    began: Instant,
    /// Whether it has been told that all serve.
    complete: bool,
    stopping: bool,
}

/// Starts the services and keeps them until SIGTERM or SIGINT, then stops them, callers first.
pub(super) async fn run(setup: Setup<'_>) -> Result<(), StackError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StackError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StackError::Signals)?;
    let Setup {
        config,
        own,
        programs,
        sockets,
        inputs,
        mut incoming,
    } = setup;
    let mut stack = Stack {
        config: &config.path,
        directory: &config.polylet.run_directory,
        entries: Vec::with_capacity(SERVICES.len()),
        inputs,
        began: Instant::now(),
        complete: false,
        stopping: false,
    };
    for ((service, program), socket) in SERVICES.iter().zip(programs).zip(sockets) {
        stack.add(service.name, program, socket, &own)?;
    }
    // All sockets are open, so callers need not wait for their callees to be up.
    for at in 0..stack.entries.len() {
        stack.start(at);
    }
    loop {
        let stuck_at = stack.stuck_at();
        tokio::select! {
            Some(input) = incoming.recv() => stack.take(input),
            () = tokio::time::sleep_until(stuck_at.unwrap_or_else(Instant::now)),
                if stuck_at.is_some() => stack.kill_stuck(),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("stopping; containers go on running");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    stack.stopping = true;
    tokio::select! {
        () = stack.stop(&mut incoming) => {}
        // Who asks twice does not want to wait.
        _ = interrupt.recv() => stack.kill_all(&mut incoming).await,
        _ = terminate.recv() => stack.kill_all(&mut incoming).await,
    }
    tracing::info!("stopped");
    Ok(())
}

/// A timer that fires so late says that this process did not run.
const OWN_DELAY: Duration = Duration::from_secs(1);

impl Stack<'_> {
    fn add(
        &mut self,
        name: &'static str,
        program: PathBuf,
        socket: UnixListener,
        own: &Path,
    ) -> Result<(), StackError> {
        let (notify, reader) = notify::open(own, name).map_err(|source| StackError::Notify {
            service: name,
            source,
        })?;
        let at = self.entries.len();
        tokio::spawn(notify::read(at, reader, self.inputs.clone()));
        self.entries.push(Entry {
            name,
            program,
            socket,
            notify,
            phase: Phase::Stopped,
            restarts: Restarts::default(),
            last_exit: String::new(),
            life: 0,
        });
        Ok(())
    }

    fn start(&mut self, at: usize) {
        let socket = server::socket_of(self.directory, self.entries[at].name);
        let entry = &mut self.entries[at];
        entry.life += 1;
        let life = entry.life;
        let started = child::start(&Start {
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
                // Told and tried again like a process that ended at once.
                let _ = inputs.send(Input::Ended {
                    at,
                    life,
                    status: Err(error),
                });
                return;
            }
        };
        tracing::debug!(service = entry.name, pid = child.pid, "started");
        let wait = tokio::spawn(async move {
            let status = process.wait().await;
            let _ = inputs.send(Input::Ended { at, life, status });
        });
        let watch = tokio::spawn(health::watch(at, life, socket, self.inputs.clone()));
        let since = Instant::now();
        entry.phase = Phase::Up(Up {
            child,
            since,
            started_at: Timestamp::now(),
            ready: false,
            serving: false,
            tasks: [wait, watch],
            stuck_at: since + child::WATCHDOG,
        });
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Ended { at, life, status } if self.entries[at].life == life => {
                self.ended(at, status);
            }
            Input::Said { at, said, pid } => self.said(at, said, pid),
            Input::Health { at, life, serving } if self.entries[at].life == life => {
                if let Some(up) = self.entries[at].up() {
                    up.serving = serving;
                }
                self.tell_when_complete();
            }
            Input::Due { at, life } if self.entries[at].life == life && !self.stopping => {
                self.start(at);
            }
            Input::List(answer) => {
                let _ = answer.send(self.entries.iter().map(Entry::seen).collect());
            }
            // Word of a process that is no more.
            Input::Ended { .. } | Input::Health { .. } | Input::Due { .. } => {}
        }
    }

    fn ended(&mut self, at: usize, status: std::io::Result<ExitStatus>) {
        let stopping = self.stopping;
        let entry = &mut self.entries[at];
        let mut up_for = Duration::ZERO;
        let mut pid = 0;
        if let Phase::Up(up) = std::mem::replace(&mut entry.phase, Phase::Stopped) {
            up.tasks.iter().for_each(|task| task.abort());
            up_for = up.since.elapsed();
            pid = up.child.pid;
        }
        let why = match status {
            Ok(status) => child::told(status),
            Err(error) => format!("not started: {error}"),
        };
        entry.last_exit.clone_from(&why);
        if stopping {
            tracing::info!(service = entry.name, pid, why, "ended");
            return;
        }
        let pause = entry.restarts.ended(up_for);
        entry.phase = Phase::BackOff;
        let when = match pause {
            Duration::ZERO => "now".to_owned(),
            pause => format!("in {pause:?}"),
        };
        tracing::warn!(
            service = entry.name,
            pid,
            why,
            "ended, starting it again {when}"
        );
        let (life, inputs) = (entry.life, self.inputs.clone());
        if pause.is_zero() {
            let _ = inputs.send(Input::Due { at, life });
            return;
        }
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = inputs.send(Input::Due { at, life });
        });
    }

    fn said(&mut self, at: usize, said: Said, pid: Option<u32>) {
        let Some(up) = self.entries[at].up() else {
            return;
        };
        if pid.is_some_and(|pid| pid != up.child.pid) {
            return;
        }
        up.pinged();
        match said {
            Said::Ready => up.ready = true,
            Said::Stopping => up.serving = false,
            Said::Watchdog => {}
        }
        self.tell_when_complete();
    }

    fn tell_when_complete(&mut self) {
        if self.complete || !self.entries.iter().all(Entry::is_serving) {
            return;
        }
        self.complete = true;
        let (count, took) = (self.entries.len(), self.began.elapsed());
        tracing::info!("all {count} services are serving after {took:.0?}");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    /// When the first of the processes that ping would count as stuck.
    fn stuck_at(&self) -> Option<Instant> {
        let stuck = |entry: &Entry| match &entry.phase {
            // Before it is ready it may wait for its lock or read what it kept.
            Phase::Up(up) if up.ready => Some(up.stuck_at),
            _ => None,
        };
        self.entries.iter().filter_map(stuck).min()
    }

    fn kill_stuck(&mut self) {
        let now = Instant::now();
        if self
            .stuck_at()
            .is_some_and(|at| now.duration_since(at) > OWN_DELAY)
        {
            // The delay was our own: their pings lie unread, and prove nothing against them.
            for up in self.entries.iter_mut().filter_map(Entry::up) {
                up.stuck_at = now + child::WATCHDOG;
            }
            return;
        }
        for entry in &mut self.entries {
            let name = entry.name;
            if let Some(up) = entry.up()
                && up.ready
                && up.stuck_at <= now
            {
                let silent = child::WATCHDOG;
                tracing::error!(
                    service = name,
                    pid = up.child.pid,
                    "silent for {silent:?}, killed"
                );
                up.child.signal(Signal::KILL);
                // Not again before the kernel has ended it.
                up.pinged();
            }
        }
    }

    /// Stops the services, callers first, each group for a bounded time.
    async fn stop(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        for group in stop_groups(&SERVICES) {
            self.signal(&group, Signal::TERM);
            if tokio::time::timeout(STOP_FOR, self.until_ended(&group, incoming))
                .await
                .is_ok()
            {
                continue;
            }
            for at in &group {
                if self.entries[*at].up().is_some() {
                    tracing::warn!(service = self.entries[*at].name, "did not end, killed");
                }
            }
            self.signal(&group, Signal::KILL);
            let _ = tokio::time::timeout(KILL_FOR, self.until_ended(&group, incoming)).await;
        }
    }

    async fn kill_all(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        let all: Vec<usize> = (0..self.entries.len()).collect();
        self.signal(&all, Signal::KILL);
        let _ = tokio::time::timeout(KILL_FOR, self.until_ended(&all, incoming)).await;
    }

    fn signal(&mut self, group: &[usize], signal: Signal) {
        for at in group {
            if let Some(up) = self.entries[*at].up() {
                up.child.signal(signal);
            }
        }
    }

    async fn until_ended(&mut self, group: &[usize], incoming: &mut UnboundedReceiver<Input>) {
        while group.iter().any(|at| self.entries[*at].up().is_some()) {
            match incoming.recv().await {
                Some(input) => self.take(input),
                None => return,
            }
        }
    }
}
