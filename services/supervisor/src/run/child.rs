use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use super::sockets::FIRST;

/// A service that does not ping for this long is stuck.
pub(super) const WATCHDOG: Duration = Duration::from_secs(30);

/// What a child is started with.
pub(super) struct Start<'a> {
    pub(super) service: &'a str,
    pub(super) program: &'a Path,
    pub(super) config: &'a Path,
    pub(super) socket: &'a UnixListener,
    pub(super) notify: &'a Path,
}

/// A running child, by a handle that never means another process.
pub(super) struct Running {
    pub(super) pid: u32,
    handle: OwnedFd,
}

impl Running {
    /// Sends a signal; a child that has ended already needs none.
    pub(super) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.handle, signal)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(pid = self.pid, %error, "a signal was not sent");
        }
    }
}

/// Starts a service with its socket as descriptor 3. It dies with this process.
pub(super) fn start(start: &Start<'_>) -> std::io::Result<(Running, Child)> {
    let mut command = Command::new(start.program);
    command
        .arg("--config")
        .arg(start.config)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", start.service)
        // Its process id is not known before it exists; services take the sockets without it.
        .env_remove("LISTEN_PID")
        .env("NOTIFY_SOCKET", start.notify)
        .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
        .env_remove("WATCHDOG_PID")
        // One thread does nearly all work: more arenas would only hold memory.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        // Ctrl-C in the terminal is for the supervisor alone: it stops the services in order.
        .process_group(0);
    let (socket, parent) = (start.socket.as_raw_fd(), std::process::id());
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
        Ok(handle) => Ok((Running { pid, handle }, child)),
        Err(error) => {
            let _ = child.start_kill();
            Err(error.into())
        }
    }
}

/// Between fork and exec: dies with the parent, has the socket as descriptor 3.
fn prepare(socket: RawFd, parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above.
    let still = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if still != i32::try_from(parent).ok() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    // SAFETY: the socket is open in the parent and so here; the number 3 is reserved in the
    // parent for exactly this, and nobody else in the child uses it. The copy is inherited over
    // exec, as it is made without close-on-exec; forgetting it leaves it open.
    #[allow(unsafe_code)] // descriptors by number are what the convention is about
    unsafe {
        use std::os::fd::{BorrowedFd, FromRawFd};
        let mut third = std::mem::ManuallyDrop::new(OwnedFd::from_raw_fd(FIRST));
        rustix::io::dup2(BorrowedFd::borrow_raw(socket), &mut third)?;
    }
    Ok(())
}

/// How a child ended, for people.
pub(super) fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended by itself".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
