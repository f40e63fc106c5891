//! The children of this process, where nothing else is known of them.

use std::ffi::OsStr;

use jiff::Timestamp;
use procfs::process::Process;

use crate::core::handover::{PredecessorHandover, ProcessHandover, ServiceHandover};

/// The variable with the names of a service's descriptors, which its process was started with. The first is its
/// socket's, which is its own.
pub(crate) const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// How long a drained process has left, in milliseconds. It has been told to stop before.
const DRAINED_ENDS_WITHIN_MS: u64 = 10_000;

/// The services whose processes are children of this one. Of several processes of one service the youngest
/// follows the others.
pub(crate) fn find() -> Vec<ServiceHandover> {
    let all = procfs::process::all_processes().into_iter().flatten();
    let children = all.flatten().filter(is_child);
    let services = children.filter_map(|process| {
        let pid = u32::try_from(process.pid).ok()?;
        let started = process.stat().ok()?.starttime;
        let environment = process.environ().ok()?;
        let name = environment.get(OsStr::new(NAMES_VARIABLE))?.to_str()?;
        let name = name.split(':').next()?;
        Some((started, name.to_owned(), pid))
    });
    let mut services: Vec<_> = services.collect();
    services.sort();
    let mut found: Vec<ServiceHandover> = Vec::new();
    for (_, name, pid) in services {
        let process = ProcessHandover::unknown(pid, Timestamp::now());
        let Some(service) = found.iter_mut().find(|service| service.name == name) else {
            found.push(ServiceHandover {
                name,
                process: Some(process),
                ..ServiceHandover::default()
            });
            continue;
        };
        if let Some(before) = service.process.replace(process) {
            service.predecessors.push(PredecessorHandover {
                pid: before.pid,
                killed_in_ms: DRAINED_ENDS_WITHIN_MS,
            });
        }
    }
    found
}

/// Whether a process is a child of this one, running or not waited for.
pub(crate) fn is_own_child(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().map(Process::new);
    process.is_some_and(|process| process.is_ok_and(|process| is_child(&process)))
}

fn is_child(process: &Process) -> bool {
    let own = u32::try_from(process.stat().map_or(0, |stat| stat.ppid)).ok();
    own == Some(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_known_by_the_name_that_they_were_started_with() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .env(NAMES_VARIABLE, "pleg:https")
            .spawn()
            .unwrap();
        let mut other = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        // The environment is that of the parent until the program has been started.
        let is_found = |found: &[ServiceHandover]| {
            let pids = found.iter().filter_map(|service| service.process.as_ref());
            pids.map(|process| process.pid).any(|pid| pid == child.id())
        };
        let mut found = find();
        while !is_found(&found) {
            found = find();
        }
        let pleg: Vec<_> = found.iter().filter(|one| one.name == "pleg").collect();
        assert_eq!(pleg.len(), 1, "{found:?}");
        assert_eq!(pleg[0].predecessors, []);
        assert!(is_own_child(child.id()) && is_own_child(other.id()));
        assert!(!is_own_child(std::process::id()));
        for child in [&mut child, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
