use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::machine;
use crate::wait;

/// A running process of a run.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub args: Vec<String>,
}

impl Process {
    /// The program's name without its directory.
    pub fn name(&self) -> &str {
        let first = self.args.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }
}

/// The processes that a run started: programs of ours, containerd, its shims, registries, a cluster's
/// programs, with a path
/// below the run's directory on their command line. The directory's random name makes that proof
/// enough; nothing else is ever signalled.
pub fn of_run(dir: &Path) -> Vec<Process> {
    let below = format!("{}/", dir.display());
    let mut found: Vec<Process> = all()
        .into_iter()
        .filter(|process| {
            let known = ["polylet", "containerd", "docker-registry", "etcd", "kube"]
                .iter()
                .any(|name| process.name().starts_with(name));
            known && process.args.iter().skip(1).any(|arg| arg.contains(&below))
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn all() -> Vec<Process> {
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
            (!args.is_empty()).then_some(Process { pid, args })
        })
        .collect()
}

/// Whether a process is there and not a zombie.
pub fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat")));
    let Ok(stat) = stat else { return false };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Asks the processes to end, waits, and kills those that stay.
pub fn end(processes: &[Process], grace: Duration) {
    for process in processes {
        machine::signal(process.pid, Signal::TERM);
    }
    if !wait::until_blocking(grace, || {
        processes.iter().all(|process| !alive(process.pid))
    }) {
        kill(processes);
    }
}

/// Kills the processes and waits until they are gone.
pub fn kill(processes: &[Process]) {
    for process in processes {
        machine::signal(process.pid, Signal::KILL);
    }
    wait::until_blocking(Duration::from_secs(5), || {
        processes.iter().all(|process| !alive(process.pid))
    });
}
