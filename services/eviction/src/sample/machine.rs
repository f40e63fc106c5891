//! The processors of the machine, from `/sys/devices/system/cpu`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Numbers of processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTopology {
    pub(crate) cores: u64,
    pub(crate) physical_cores: u64,
    pub(crate) sockets: u64,
}

/// Reads the topology.
pub(crate) fn topology() -> CpuTopology {
    read(Path::new("/sys/devices/system/cpu"))
}

fn read(dir: &Path) -> CpuTopology {
    let mut topology = CpuTopology::default();
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            continue;
        }
        let value = |file: &str| {
            let path = entry.path().join("topology").join(file);
            fs::read_to_string(path).ok().map(|id| id.trim().to_owned())
        };
        // A processor that is off has no topology.
        if let (Some(core), Some(socket)) = (value("core_id"), value("physical_package_id")) {
            topology.cores += 1;
            cores.insert((socket.clone(), core));
            sockets.insert(socket);
        }
    }
    topology.physical_cores = cores.len() as u64;
    topology.sockets = sockets.len() as u64;
    topology
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::cgroup::tests::directory;

    #[test]
    fn threads_of_a_core_count_once() {
        let dir = directory(&[
            ("cpu0/topology/core_id", "0\n"),
            ("cpu0/topology/physical_package_id", "0\n"),
            ("cpu1/topology/core_id", "0\n"),
            ("cpu1/topology/physical_package_id", "0\n"),
            ("cpu2/topology/core_id", "0\n"),
            ("cpu2/topology/physical_package_id", "1\n"),
            ("cpu3/online", "0\n"),
            ("cpufreq/policy", "x\n"),
        ]);
        let expected = CpuTopology {
            cores: 3,
            physical_cores: 2,
            sockets: 2,
        };
        assert_eq!(read(dir.path()), expected);
    }
}
