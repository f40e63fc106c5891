use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::machine;
use crate::wait;

/// A process of a run.
#[derive(Debug, Clone)]
pub struct RunProcess {
    /// Process id.
    pub pid: u32,
    /// Command line.
    pub args: Vec<String>,
}

impl RunProcess {
    /// The program's file name.
    pub fn name(&self) -> &str {
        let first = self.args.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }
}

/// Processes started by a run (our programs, containerd, shims, registries, control plane): those
/// with a path below the run's directory on their command line. The directory's random name makes
/// this reliable; no other process is ever signalled.
pub fn list(dir: &Path) -> Vec<RunProcess> {
    let below = format!("{}/", dir.display());
    let mut found: Vec<RunProcess> = all()
        .into_iter()
        .filter(|process| {
            let known = [
                "polylet",
                "containerd",
                "dockerd",
                "docker-registry",
                "etcd",
                "kube",
                // A virtual machine's QEMU is run by its own dynamic linker.
                "ld-linux",
            ]
            .iter()
            .any(|name| process.name().starts_with(name));
            known && process.args.iter().skip(1).any(|arg| arg.contains(&below))
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn all() -> Vec<RunProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let text = String::from_utf8_lossy(&line);
            let args: Vec<String> = text
                .split('\0')
                .filter(|arg| !arg.is_empty())
                .map(str::to_owned)
                .collect();
            (!args.is_empty()).then_some(RunProcess { pid, args })
        })
        .collect()
}

/// Whether a process exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat")));
    let Ok(stat) = stat else { return false };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Sends SIGTERM to the processes, waits, and kills the remaining ones.
pub fn end(processes: &[RunProcess], grace: Duration) {
    for process in processes {
        machine::signal(process.pid, Signal::TERM);
    }
    if !wait::until_blocking(grace, || {
        processes.iter().all(|process| !alive(process.pid))
    }) {
        kill(processes);
    }
}

/// Kills the processes and waits until they have exited.
pub fn kill(processes: &[RunProcess]) {
    for process in processes {
        machine::signal(process.pid, Signal::KILL);
    }
    wait::until_blocking(Duration::from_secs(5), || {
        processes.iter().all(|process| !alive(process.pid))
    });
}
