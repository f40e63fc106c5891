//! The children of this process, where nothing else is known of them.

use std::ffi::OsStr;

use jiff::Timestamp;
use procfs::process::Process;

use crate::core::handover::{ProcessHandover, ServiceHandover};

/// The variable with the names of a service's descriptors, which its process was started with. The first is its
/// socket's, which is its own.
pub(crate) const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// The services whose processes are children of this one.
pub(crate) fn find() -> Vec<ServiceHandover> {
    let all = procfs::process::all_processes().into_iter().flatten();
    let children = all.flatten().filter(is_child);
    let services = children.filter_map(|process| {
        let pid = u32::try_from(process.pid).ok()?;
        let environment = process.environ().ok()?;
        let name = environment.get(OsStr::new(NAMES_VARIABLE))?.to_str()?;
        let name = name.split(':').next()?;
        Some(ServiceHandover {
            name: name.to_owned(),
            process: Some(ProcessHandover::unknown(pid, Timestamp::now())),
            ..ServiceHandover::default()
        })
    });
    services.collect()
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
        assert!(is_own_child(child.id()) && is_own_child(other.id()));
        assert!(!is_own_child(std::process::id()));
        for child in [&mut child, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
