//! Child processes: how a service is started and signalled.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use polylet_kit::notify::OVERLAP_VARIABLE;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::sockets::LISTEN_FDS_START;
use super::stored_descriptors::StoredDescriptors;
use crate::core::liveness::WATCHDOG_TIMEOUT;
use crate::handover::children::{NAMES_VARIABLE, is_own_child};
use crate::handover::descriptors;

/// What a child is started with.
pub(super) struct ChildSpec<'a> {
    pub(super) service: &'a str,
    pub(super) program: &'a Path,
    pub(super) config: &'a Path,
    pub(super) socket: &'a UnixListener,
    pub(super) notify: &'a Path,
    pub(super) stored: &'a StoredDescriptors,
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

/// The end of a child, once.
pub(super) struct ChildExit {
    pid: Pid,
    pidfd: AsyncFd<OwnedFd>,
}

impl ChildExit {
    /// Waits for the end. If it is cancelled, the next wait still finds it.
    pub(super) async fn wait(&self) -> std::io::Result<ExitStatus> {
        loop {
            let mut readable = self.pidfd.readable().await?;
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
                Ok(None) => readable.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A child of this process, which nobody has waited for, so that its id is not used again. Needs the tokio
/// runtime.
fn open(pid: u32) -> std::io::Result<(ChildHandle, ChildExit)> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or(Errno::SRCH)?;
    let pidfd = pidfd_open(raw, PidfdFlags::empty())?;
    let copy = pidfd.try_clone()?;
    // SAFETY: an `OwnedFd` always names the descriptor that it owns, and it is only read through `AsyncFd`.
    #[allow(unsafe_code)]
    let readable = unsafe { AsyncFd::register_with_interest(copy, Interest::READABLE) };
    let exit = ChildExit {
        pid: raw,
        pidfd: readable?,
    };
    Ok((ChildHandle { pid, pidfd }, exit))
}

/// A child that the program before this one has started, in this process. Needs the tokio runtime.
pub(super) fn adopt(pid: u32) -> std::io::Result<(ChildHandle, ChildExit)> {
    if is_own_child(pid) {
        open(pid)
    } else {
        Err(Errno::CHILD.into())
    }
}

/// Starts a service with its socket as descriptor 3. It is killed when the calling thread ends, which is the
/// main thread of this process. Needs the tokio runtime.
pub(super) fn start(spec: &ChildSpec<'_>) -> std::io::Result<(ChildHandle, ChildExit)> {
    let stored = spec.stored.iter();
    let (mut names, mut descriptors) = (vec![spec.service], vec![spec.socket.as_raw_fd()]);
    for (name, descriptor) in stored {
        names.push(name);
        descriptors.push(descriptor.as_raw_fd());
    }
    let mut command = Command::new(spec.program);
    command
        .arg("--config")
        .arg(spec.config)
        .env("LISTEN_FDS", descriptors.len().to_string())
        .env(NAMES_VARIABLE, names.join(":"))
        // The process id is unknown before the fork; services accept the sockets without it.
        .env_remove("LISTEN_PID")
        .env("NOTIFY_SOCKET", spec.notify)
        .env("WATCHDOG_USEC", WATCHDOG_TIMEOUT.as_micros().to_string())
        .env_remove("WATCHDOG_PID")
        .env(OVERLAP_VARIABLE, "1")
        .env_remove(descriptors::VARIABLE)
        .env("GLIBC_TUNABLES", polylet_kit::memory::TUNABLES)
        .stdin(Stdio::null())
        // Ctrl-C in a terminal signals the supervisor alone, which stops the services in order.
        .process_group(0);
    let parent = std::process::id();
    // SAFETY: `prepare` only makes system calls that are safe between fork and exec, and neither
    // allocates nor locks.
    #[allow(unsafe_code)] // the standard library has no other way to set these up in a child
    unsafe {
        command.pre_exec(move || prepare(&descriptors, parent));
    }
    let mut child = command.spawn()?;
    open(child.id()).inspect_err(|_| {
        let _ = child.kill();
        let _ = child.wait();
    })
}

/// Runs between fork and exec: ties the child to its parent and sets up the inherited descriptors.
fn prepare(descriptors: &[RawFd], parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before.
    let current_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if current_parent != i32::try_from(parent).ok() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    // SAFETY: the descriptors are open in the parent and so here; the numbers are reserved in the parent
    // for exactly this, and nothing else in the child uses them. The copies are inherited over exec, as
    // they are made without close-on-exec; forgetting them leaves them open.
    #[allow(unsafe_code)] // descriptors by number are what the convention is about
    unsafe {
        use std::os::fd::{BorrowedFd, FromRawFd};
        for (number, descriptor) in (LISTEN_FDS_START..).zip(descriptors) {
            let mut copy = std::mem::ManuallyDrop::new(OwnedFd::from_raw_fd(number));
            rustix::io::dup2(BorrowedFd::borrow_raw(*descriptor), &mut copy)?;
        }
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
