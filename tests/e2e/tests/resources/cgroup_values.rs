//! Values of cgroup files, in the units of cgroup v1.

use super::*;

pub(crate) const CPU_SHARES: Kind = ("cpu", "cpu.shares", "cpu.weight");
pub(crate) const MEMORY: Kind = ("memory", "memory.limit_in_bytes", "memory.max");
pub(crate) const PIDS: Kind = ("pids", "pids.max", "pids.max");

pub(crate) fn file(node: &Node, path: &str, kind: Kind) -> PathBuf {
    let root = PathBuf::from("/sys/fs/cgroup");
    let (hierarchy, name) = match cgroup::is_v2() {
        true => (root, kind.2),
        false => (root.join(kind.0), kind.1),
    };
    hierarchy.join(below_root(node, path)).join(name)
}

/// Path of a QoS class, pod and container below kubepods for the cgroup driver in use.
fn below_root(node: &Node, path: &str) -> String {
    let root = node.cgroup().trim_start_matches('/');
    let parts = path.split('/').filter(|part| !part.is_empty());
    if cgroup::TestCgroupDriver::from_env() == cgroup::TestCgroupDriver::Cgroupfs {
        let below: Vec<&str> = [root, "kubepods"].into_iter().chain(parts).collect();
        return below.join("/");
    }
    let mut slice = format!("{}-kubepods", root.trim_end_matches(".slice"));
    let mut path = format!("{root}/{slice}.slice");
    for part in parts {
        // Only container ids are that long; their cgroups are the runtime's.
        if part.len() == 64 {
            path.push_str(&format!("/cri-containerd-{part}.scope"));
        } else {
            slice = format!("{slice}-{}", part.replace('-', "_"));
            path.push_str(&format!("/{slice}.slice"));
        }
    }
    path
}

pub(crate) fn number(file: &PathBuf) -> i64 {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.trim().parse().unwrap_or(i64::MAX)
}

pub(crate) fn read(node: &Node, path: &str, kind: Kind) -> i64 {
    number(&file(node, path, kind))
}

/// CPU shares converted to this machine's cgroup version.
pub(crate) fn weight(shares: i64) -> i64 {
    match cgroup::is_v2() {
        true => 1 + (shares - 2) * 9_999 / 262_142,
        false => shares,
    }
}

/// A limit or none, which cgroup v1 shows as a huge number.
pub(crate) fn bound(node: &Node, path: &str, kind: Kind) -> Option<i64> {
    Some(read(node, path, kind)).filter(|bound| *bound < 1 << 60)
}

pub(crate) fn quota(node: &Node, path: &str) -> Option<i64> {
    if cgroup::is_v2() {
        let text = fs::read_to_string(file(node, path, ("", "", "cpu.max"))).unwrap();
        return text.split_whitespace().next()?.parse().ok();
    }
    let kind = ("cpu", "cpu.cfs_quota_us", "");
    Some(number(&file(node, path, kind))).filter(|quota| *quota > 0)
}
