//! The processes of a cgroup and their files.

use std::fs;
use std::path::Path;

use crate::core::stats::TaskUsage;

/// Most open files that are looked at in one cgroup. Its pod decides how many it opens; beyond these the
/// counts are a lower bound.
const MAX_FILES: usize = 10_000;

/// Counts the processes in a file of process ids, and if wanted their open files, as cAdvisor.
pub(crate) fn count(procs: &Path, with_files: bool, tasks: &mut TaskUsage) {
    let Ok(text) = fs::read_to_string(procs) else {
        return;
    };
    let ids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    tasks.processes = Some(ids.len() as u64);
    // A process of another pid namespace is 0.
    tasks.first = ids.iter().copied().find(|id| *id > 0);
    if !with_files {
        return;
    }
    count_files(&ids, MAX_FILES, tasks);
}

fn count_files(ids: &[u32], limit: usize, tasks: &mut TaskUsage) {
    let directories = ids
        .iter()
        .filter_map(|id| fs::read_dir(format!("/proc/{id}/fd")).ok());
    for file in directories.flatten().flatten().take(limit) {
        tasks.file_descriptors += 1;
        let target = fs::read_link(file.path()).unwrap_or_default();
        tasks.sockets += u64::from(target.to_string_lossy().starts_with("socket"));
    }
}

/// The soft limit of open files of a process; -1 without a limit.
pub(crate) fn max_open_files(id: u32) -> Option<i64> {
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).ok()?;
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match limit.split_whitespace().next()? {
        "unlimited" => Some(-1),
        number => number.parse().ok(),
    }
}

/// The cgroup of this process, or the slice around it that all services of the agent are in; `None` if
/// it is in the root cgroup.
pub(crate) fn own_cgroup() -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    agent_cgroup(&text)
}

fn agent_cgroup(text: &str) -> Option<String> {
    const SLICE: &str = "/polylet.slice";
    // The memory controller with cgroup v1, the only hierarchy with v2.
    let mut fields = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let memory = fields
        .clone()
        .find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let (_, cgroup) = memory.or_else(|| fields.find(|(controllers, _)| controllers.is_empty()))?;
    let end = cgroup.find(SLICE).map(|at| at + SLICE.len());
    let cgroup = end.and_then(|end| cgroup.get(..end)).unwrap_or(cgroup);
    (cgroup != "/").then(|| cgroup.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_in_its_slice_or_nowhere() {
        for (text, cgroup) in [
            ("0::/\n", None),
            (
                "0::/system.slice/kubelet.service\n",
                Some("/system.slice/kubelet.service"),
            ),
            (
                "0::/polylet.slice/polylet-eviction.service\n",
                Some("/polylet.slice"),
            ),
            ("4:cpu:/a\n3:memory,other:/b\n0::/c\n", Some("/b")),
            ("nonsense", None),
        ] {
            assert_eq!(agent_cgroup(text).as_deref(), cgroup, "{text}");
        }
    }

    #[test]
    fn own_files_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let procs = dir.path().join("cgroup.procs");
        fs::write(&procs, format!("{own}\n")).unwrap();
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut tasks = TaskUsage::default();
        count(&procs, true, &mut tasks);
        assert_eq!((tasks.processes, tasks.first), (Some(1), Some(own)));
        assert!(tasks.sockets > 0 && tasks.file_descriptors > tasks.sockets);
        assert!(max_open_files(own).is_some());
        let mut limited = TaskUsage::default();
        count_files(&[own, own], 2, &mut limited);
        assert_eq!(limited.file_descriptors, 2);
        let mut none = TaskUsage::default();
        count(&dir.path().join("none"), true, &mut none);
        assert_eq!(none, TaskUsage::default());
    }
}
