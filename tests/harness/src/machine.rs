use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::Signal;

use crate::error::HarnessError;

/// Fails without the privileges for cgroups and mounts.
///
/// # Errors
/// [`HarnessError::NotRoot`].
pub fn need_root() -> Result<(), HarnessError> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(HarnessError::NotRoot)
    }
}

/// The architecture's name in container images and Debian.
///
/// # Errors
/// [`HarnessError::Architecture`] for architectures other than x86_64 and aarch64.
pub fn architecture() -> Result<&'static str, HarnessError> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(HarnessError::Architecture {
            arch: other.to_owned(),
        }),
    }
}

/// Finds a program on PATH and in the system's administration directories.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = [
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/usr/local/sbin",
        "/usr/local/bin",
    ];
    std::env::split_paths(&path)
        .chain(extra.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Path of a statically linked busybox, which runs in an otherwise empty image.
pub fn static_busybox() -> Option<PathBuf> {
    let found = program("busybox")?;
    is_static(&found).then_some(found)
}

/// Whether an ELF program has no interpreter.
fn is_static(path: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let Ok(bytes) = fs::read(path) else {
        return false;
    };
    let half = |at: usize| {
        bytes
            .get(at..at + 2)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u16::from_le_bytes)
    };
    if bytes.get(..5) != Some(b"\x7fELF\x02") {
        return false;
    }
    let Some(table) = bytes
        .get(32..40)
        .and_then(|b| b.try_into().ok())
        .map(u64::from_le_bytes)
    else {
        return false;
    };
    let (size, count) = (usize::from(half(54)), usize::from(half(56)));
    (0..count).all(|index| {
        let at = usize::try_from(table)
            .unwrap_or(usize::MAX)
            .saturating_add(index * size);
        let kind = bytes
            .get(at..at.saturating_add(4))
            .and_then(|b| b.try_into().ok());
        kind.map(u32::from_le_bytes) != Some(PT_INTERP)
    })
}

/// The directory with the required CNI plugins.
pub fn cni_plugins() -> Option<PathBuf> {
    let needed = ["bridge", "host-local", "portmap", "loopback"];
    ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"]
        .iter()
        .map(PathBuf::from)
        .find(|dir| needed.iter().all(|name| dir.join(name).is_file()))
}

/// Below the ports that the kernel gives to outgoing connections and to sockets without a port, and above
/// those of Kubernetes' own components.
const FREE_PORTS: std::ops::Range<u16> = 12_000..30_000;

/// A currently free TCP port of the loopback address, another one with each call. Nothing else is given it
/// by the kernel before it is used.
///
/// # Errors
/// Fails if no socket can be bound.
pub fn free_port() -> Result<u16, HarnessError> {
    static OFFSET: LazyLock<AtomicU16> = LazyLock::new(|| {
        // Other processes begin elsewhere.
        let random = RandomState::new().hash_one(std::process::id());
        AtomicU16::new(u16::try_from(random >> 48).unwrap_or_default())
    });
    let size = FREE_PORTS.end - FREE_PORTS.start;
    let next = || FREE_PORTS.start + OFFSET.fetch_add(1, Ordering::Relaxed) % size;
    let mut ports = std::iter::repeat_with(next).take(usize::from(size));
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| HarnessError::PortInUse {
        address: "127.0.0.1".to_owned(),
        port: 0,
    })
}

/// Fails if the port is in use.
///
/// # Errors
/// [`HarnessError::PortInUse`].
pub fn need_port(address: &str, port: u16) -> Result<(), HarnessError> {
    match TcpListener::bind((address, port)) {
        Ok(_) => Ok(()),
        Err(_) => Err(HarnessError::PortInUse {
            address: address.to_owned(),
            port,
        }),
    }
}

/// Whether the directory can be the upper directory of an overlay mount. It cannot on another
/// overlay, as inside most containers.
pub fn can_overlay(dir: &Path) -> bool {
    const OVERLAYFS: i64 = 0x794c_7630;
    rustix::fs::statfs(dir).map_or(true, |fs| fs.f_type != OVERLAYFS)
}

/// Runs a program and returns its output; a non-zero exit status is an error.
///
/// # Errors
/// [`HarnessError::Run`] and [`HarnessError::Failed`].
pub fn run(program: &Path, args: &[&str]) -> Result<String, HarnessError> {
    let output = output(Command::new(program).args(args))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end; a non-zero exit status is an error.
pub(crate) fn output(command: &mut Command) -> Result<Output, HarnessError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| HarnessError::Run {
        program: name.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let args: Vec<_> = command
        .get_args()
        .map(|arg| arg.to_string_lossy())
        .collect();
    let mut all = String::from_utf8_lossy(&output.stderr).into_owned();
    all.push_str(&String::from_utf8_lossy(&output.stdout));
    Err(HarnessError::Failed {
        program: format!("{name} {}", args.join(" ")),
        status: output.status.to_string(),
        output: all.trim().to_owned(),
    })
}

/// Sends a signal; ESRCH is not an error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // The process may have exited by itself.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// The workspace's target directory.
pub fn target_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return PathBuf::from(dir);
    }
    workspace().join("target")
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn free_ports_differ_and_are_not_given_by_the_kernel() {
        let ports: BTreeSet<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 100);
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(ports.iter().all(|port| *port < first), "{ports:?}");
    }
}
