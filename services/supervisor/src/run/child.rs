//! Child processes: how a service is started and signalled.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use super::sockets::LISTEN_FDS_START;
use crate::core::liveness::WATCHDOG_TIMEOUT;

/// What a child is started with.
pub(super) struct ChildSpec<'a> {
    pub(super) service: &'a str,
    pub(super) program: &'a Path,
    pub(super) config: &'a Path,
    pub(super) socket: &'a UnixListener,
    pub(super) notify: &'a Path,
}

/// A running child, identified by a pidfd, which never refers to another process.
pub(super) struct ChildHandle {
    pub(super) pid: u32,
    pidfd: OwnedFd,
}

impl ChildHandle {
    /// Sends a signal, unless the child has exited.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.pidfd, signal)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(pid = self.pid, %error, "failed to signal service");
        }
    }
}

/// Starts a service with its socket as descriptor 3. It is killed when this process ends.
pub(super) fn start(spec: &ChildSpec<'_>) -> std::io::Result<(ChildHandle, Child)> {
    let mut command = Command::new(spec.program);
    command
        .arg("--config")
        .arg(spec.config)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", spec.service)
        // The process id is unknown before the fork; services accept the sockets without it.
        .env_remove("LISTEN_PID")
        .env("NOTIFY_SOCKET", spec.notify)
        .env("WATCHDOG_USEC", WATCHDOG_TIMEOUT.as_micros().to_string())
        .env_remove("WATCHDOG_PID")
        // One thread does nearly all work: more arenas would only waste memory.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        // Ctrl-C in a terminal signals the supervisor alone, which stops the services in order.
        .process_group(0);
    let (socket, parent) = (spec.socket.as_raw_fd(), std::process::id());
    // SAFETY: `prepare` only makes system calls that are safe between fork and exec, and neither
    // allocates nor locks.
    #[allow(unsafe_code)] // the standard library has no other way to set these up in a child
    unsafe {
        command.pre_exec(move || prepare(socket, parent));
    }
    let mut child = command.spawn()?;
    let pid = child.id().unwrap_or_default();
    let opened = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(rustix::io::Errno::SRCH);
    match opened.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Ok(pidfd) => Ok((ChildHandle { pid, pidfd }, child)),
        Err(error) => {
            let _ = child.start_kill();
            Err(error.into())
        }
    }
}

/// Runs between fork and exec: ties the child to its parent and sets up descriptor 3.
fn prepare(socket: RawFd, parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before.
    let current_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if current_parent != i32::try_from(parent).ok() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    // SAFETY: the socket is open in the parent and so here; the number 3 is reserved in the
    // parent for exactly this, and nothing else in the child uses it. The copy is inherited over
    // exec, as it is made without close-on-exec; forgetting it leaves it open.
    #[allow(unsafe_code)] // descriptors by number are what the convention is about
    unsafe {
        use std::os::fd::{BorrowedFd, FromRawFd};
        let mut third = std::mem::ManuallyDrop::new(OwnedFd::from_raw_fd(LISTEN_FDS_START));
        rustix::io::dup2(BorrowedFd::borrow_raw(socket), &mut third)?;
    }
    Ok(())
}

/// The exit status for logs and `polylet status`.
pub(super) fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "exited".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "unknown exit status".to_owned(),
    }
}
