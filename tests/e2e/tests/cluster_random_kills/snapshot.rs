//! Everything on the machine that belongs to pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use polylet_e2e::ok;
use polylet_harness::Node;
use polylet_harness::error::report;
use polylet_harness::wait::{Poll, until};

/// What the pods of a node have outside their processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces(BTreeSet<String>);

impl Traces {
    pub(crate) async fn of(node: &Node) -> Self {
        ok(Self::try_of(node).await)
    }

    async fn try_of(node: &Node) -> Result<Self, polylet_harness::HarnessError> {
        let cri = node.containerd.cri();
        let mut found = BTreeSet::new();
        for sandbox in cri.sandboxes().await? {
            found.insert(format!("sandbox {}", sandbox.id));
        }
        for container in cri.containers().await? {
            found.insert(format!("container {}", container.id));
        }
        for mount in node.mounts() {
            found.insert(format!("mount {}", mount.display()));
        }
        let dirs = node.dirs();
        let directories = [
            dirs.root.join("pods"),
            dirs.logs.clone(),
            dirs.links.clone(),
            dirs.run.join("sync-coordinator/pods"),
        ];
        for directory in directories {
            add_entries(&directory, &mut found);
        }
        let cgroup = node.cgroup().trim_start_matches('/').to_owned();
        let root = Path::new("/sys/fs/cgroup");
        add_cgroups(&root.join(&cgroup), &mut found);
        for hierarchy in fs::read_dir(root).into_iter().flatten().flatten() {
            add_cgroups(&hierarchy.path().join(&cgroup), &mut found);
        }
        Ok(Self(found))
    }

    /// Waits until the node has the same again.
    pub(crate) async fn wait(&self, node: &Node) {
        ok(until("nothing to be left over", || async {
            let now = match Self::try_of(node).await {
                Ok(now) => now,
                Err(error) => return Poll::Pending(report(&error)),
            };
            let more: Vec<_> = now.0.difference(&self.0).collect();
            let less: Vec<_> = self.0.difference(&now.0).collect();
            if more.is_empty() && less.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("left over: {more:?}, missing: {less:?}"))
            }
        })
        .await);
    }
}

fn add_entries(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.insert(entry.path().display().to_string());
    }
}

/// All cgroups below one.
fn add_cgroups(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.path().display().to_string());
            add_cgroups(&entry.path(), found);
        }
    }
}

/// Checks that no container runs twice in a pod.
pub(crate) async fn verify_nothing_runs_twice(node: &Node) {
    const RUNNING: i32 = 1;
    let mut ids: BTreeMap<(String, String), String> = BTreeMap::new();
    for container in ok(node.containerd.cri().containers().await) {
        if container.state != RUNNING {
            continue;
        }
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let key = (
            label("io.kubernetes.pod.uid"),
            label("io.kubernetes.container.name"),
        );
        if let Some(other) = ids.insert(key.clone(), container.id.clone()) {
            panic!("{key:?} runs twice: {other} and {}", container.id);
        }
    }
}
