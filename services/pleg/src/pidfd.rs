//! Processes as pidfds: the exit of one process, and of no other that gets its number later.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PidfdError {
    #[error("failed to open process {pid}")]
    Open {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("failed to read the cgroups of process {pid}")]
    Cgroups {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("failed to wait for process {pid}")]
    Wait {
        pid: i32,
        #[source]
        source: io::Error,
    },
}

/// A process that can be waited for.
pub(crate) struct Pidfd(AsyncFd<OwnedFd>);

/// The result of looking up a process id.
pub(crate) enum ProcessLookup {
    /// The container's process.
    Found(Pidfd),
    /// No process has this id.
    NotFound,
    /// The process does not belong to the container.
    OtherProcess,
}

/// Whether process ids mean the same here as on the host: whether this is the initial pid namespace,
/// which has the same inode on every machine.
pub(crate) fn in_host_pid_namespace() -> bool {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.as_os_str() == "pid:[4026531836]"
}

/// Whether a process is in the pid namespace of this one, so that ids mean the same to both.
pub(crate) fn shares_pid_namespace(pid: i32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let own = namespace("self");
    own.is_some() && namespace(&pid.to_string()) == own
}

/// Opens the process with this id if it belongs to the container.
pub(crate) fn lookup(pid: i32, container_id: &str) -> Result<ProcessLookup, PidfdError> {
    let Some(number) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return Ok(ProcessLookup::OtherProcess);
    };
    let fd = match pidfd_open(number, PidfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Ok(ProcessLookup::NotFound),
        // Kernels before 5.10 have no flags.
        Err(Errno::INVAL) => match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(error) => return Err(open_error(pid, error)),
        },
        Err(error) => return Err(open_error(pid, error)),
    };
    // In another pid namespace the id means another process. Read while the pidfd is open: a process
    // that has taken over the id since is recognised by its cgroup.
    let cgroups = match std::fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(cgroups) => cgroups,
        Err(error) if is_gone(&error) => return Ok(ProcessLookup::NotFound),
        Err(source) => return Err(PidfdError::Cgroups { pid, source }),
    };
    if !is_container_process(&cgroups, container_id) {
        return Ok(ProcessLookup::OtherProcess);
    }
    match register(fd) {
        Ok(fd) => Ok(ProcessLookup::Found(Pidfd(fd))),
        Err(source) => Err(PidfdError::Wait { pid, source }),
    }
}

fn is_container_process(cgroups: &str, container_id: &str) -> bool {
    !container_id.is_empty() && cgroups.contains(container_id)
}

// The safe constructors are deprecated because a type could return a different descriptor each time.
#[allow(unsafe_code)]
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and always names the same descriptor.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

fn open_error(pid: i32, error: Errno) -> PidfdError {
    let source = error.into();
    PidfdError::Open { pid, source }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

impl Pidfd {
    /// Waits until the process has exited.
    pub(crate) async fn exited(self) {
        // Fails only when the async runtime shuts down.
        if self.0.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Raises the soft limit of open files to the hard limit and returns the limit in effect; `None` for
/// no limit.
pub(crate) fn raise_open_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "failed to raise the open file limit");
            limit.current
        }
    }
}
