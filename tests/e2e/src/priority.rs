//! Priority over other work of the machine, such as builds, whose times would hide what a test measures.

use std::path::Path;

use polylet_harness::Node;

/// The highest one; as much as twenty builds of the usual one.
const HIGHEST: i32 = -20;

/// Prefers this process and all that it starts from now on. Without it a test passes on an idle machine.
pub fn prefer_this_process() {
    let _ = rustix::process::setpriority_process(None, HIGHEST);
    // Where sessions share the processors, the priority of a process is one within its session.
    let _ = std::fs::write("/proc/self/autogroup", HIGHEST.to_string());
}

/// Prefers the containers of a node: without it all of them have the share of one process, whatever the priority of
/// this one.
pub fn prefer_pods(node: &Node) {
    let cgroup = node.cgroup().trim_start_matches('/');
    let root = Path::new("/sys/fs/cgroup");
    for (file, shares) in [
        (root.join("cpu").join(cgroup).join("cpu.shares"), "16384"),
        (root.join(cgroup).join("cpu.weight"), "1600"),
    ] {
        // Of cgroup v1 or v2.
        let _ = std::fs::write(file, shares);
    }
}
