use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Why a process cannot be waited for.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    #[error("opening process {pid}")]
    Open {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("reading the cgroups of process {pid}")]
    Cgroups {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("waiting for process {pid}")]
    Wait {
        pid: i32,
        #[source]
        source: io::Error,
    },
}

/// One process, and no other that gets its number later.
pub(super) struct Process(AsyncFd<OwnedFd>);

pub(super) enum Found {
    Process(Process),
    /// There is no such process.
    None,
    /// It does not belong to the container.
    Stranger,
}

/// Whether every process of the machine has a number here: in the kernel's own pid namespace, which
/// has the same name on every machine.
pub(crate) fn sees_all() -> bool {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.as_os_str() == "pid:[4026531836]"
}

/// The process of that number, if it is the container's.
pub(super) fn find(pid: i32, container: &str) -> Result<Found, ProcessError> {
    let Some(number) = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return Ok(Found::Stranger);
    };
    let fd = match pidfd_open(number, PidfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(Errno::SRCH) => return Ok(Found::None),
        // Old kernels know only the plain call.
        Err(Errno::INVAL) => match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(error) => return Err(open_failed(pid, error)),
        },
        Err(error) => return Err(open_failed(pid, error)),
    };
    // Numbers of another pid namespace mean other processes. Read while the process is held: one
    // that took the number over would be told by its cgroup.
    let cgroups = match std::fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(cgroups) => cgroups,
        Err(error) if is_gone(&error) => return Ok(Found::None),
        Err(source) => return Err(ProcessError::Cgroups { pid, source }),
    };
    if container.is_empty() || !cgroups.contains(container) {
        return Ok(Found::Stranger);
    }
    match watch(fd) {
        Ok(fd) => Ok(Found::Process(Process(fd))),
        Err(source) => Err(ProcessError::Wait { pid, source }),
    }
}

// The safe constructors are deprecated, because they take types that lie about their descriptor.
#[allow(unsafe_code)]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and always names the same descriptor.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}

fn open_failed(pid: i32, error: Errno) -> ProcessError {
    let source = error.into();
    ProcessError::Open { pid, source }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

impl Process {
    /// Waits for its end.
    pub(super) async fn ended(self) {
        // Fails only when the whole runtime stops.
        if self.0.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Lets this process hold as many descriptors as it may, and says how many; none for no limit.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of descriptors stays as it is");
            limit.current
        }
    }
}
