//! What is left of a pod after its removal.

use std::fs;
use std::path::{Path, PathBuf};

use polylet_e2e::ok;
use polylet_harness::Node;
use polylet_harness::error::report;
use polylet_harness::wait::{Poll, until};

/// The changes of pods at the API server: removals are in it until it is compacted, a minute later.
const CHANGE_LOG: &str = "pod-config/api.json";

/// Waits until nothing of a pod is left.
pub(crate) async fn wait_for_none(node: &Node, uid: &str, name: &str) -> Result<(), String> {
    until(format!("nothing to be left of {name}"), || async {
        let left = orphans(node, uid, name).await;
        if left.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending(left.join(", "))
        }
    })
    .await
    .map_err(|error| report(&error))
}

async fn orphans(node: &Node, uid: &str, name: &str) -> Vec<String> {
    let cri = node.containerd.cri();
    let mut left = Vec::new();
    let is_its = |labels: &std::collections::HashMap<String, String>| {
        labels
            .get("io.kubernetes.pod.uid")
            .is_some_and(|of| of == uid)
    };
    let sandboxes = ok(cri.sandboxes().await);
    let containers = ok(cri.containers().await);
    left.extend(
        sandboxes
            .iter()
            .filter(|one| is_its(&one.labels))
            .map(|one| format!("sandbox {}", one.id)),
    );
    left.extend(
        containers
            .iter()
            .filter(|one| is_its(&one.labels))
            .map(|one| format!("container {}", one.id)),
    );
    let mut paths = node.mounts();
    let dirs = node.dirs();
    for dir in [&dirs.root, &dirs.logs, &dirs.links] {
        paths.extend(below(dir, 3));
    }
    for hierarchy in ok(fs::read_dir("/sys/fs/cgroup")).flatten() {
        let cgroup = node.cgroup().trim_start_matches('/');
        paths.extend(below(&hierarchy.path().join(cgroup), 3));
    }
    paths.extend(below(
        &Path::new("/sys/fs/cgroup").join(node.cgroup().trim_start_matches('/')),
        3,
    ));
    let state = [below(&dirs.run, 4), below(&dirs.state, 4)].concat();
    // systemd's names have no dashes.
    let names = [uid.to_owned(), uid.replace('-', "_"), format!("{name}_")];
    let names_it = |path: &PathBuf| {
        let path = path.display().to_string();
        names.iter().any(|name| path.contains(name.as_str()))
    };
    left.extend(
        paths
            .iter()
            .chain(&state)
            .filter(|path| names_it(path))
            .map(|path| path.display().to_string()),
    );
    let is_log = |path: &Path| path.ends_with(CHANGE_LOG);
    for path in state.iter().filter(|path| path.is_file() && !is_log(path)) {
        let is_temporary = path.extension().is_some_and(|end| end == "new");
        let content = fs::read(path).unwrap_or_default();
        if is_temporary || String::from_utf8_lossy(&content).contains(uid) {
            left.push(path.display().to_string());
        }
    }
    left
}

/// All entries below a directory, down to a depth.
fn below(dir: &Path, depth: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && depth > 1 {
            found.extend(below(&path, depth - 1));
        }
        found.push(path);
    }
    found
}
