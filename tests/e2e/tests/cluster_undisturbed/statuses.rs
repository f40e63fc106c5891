//! Every status patch changes something, and standing pods get none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use polylet_e2e::ok;
use polylet_harness::Cluster;
use polylet_harness::cluster::AuditEvent;
use polylet_harness::wait::{Poll, until};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::standing_pods::{PODS, is_standing};

/// The changes of all pods' statuses at the API server.
pub(crate) struct Statuses {
    changes: Arc<Mutex<BTreeMap<String, Changes>>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default, Clone)]
struct Changes {
    last: Value,
    count: usize,
}

/// Requests to patch a pod's status.
#[derive(Debug, Default)]
struct Patches {
    answered: usize,
    /// Their sender was killed before the answer: the API server has applied them or not.
    cut: usize,
}

impl Patches {
    fn may_have_changed(&self, times: usize) -> bool {
        (self.answered..=self.answered + self.cut).contains(&times)
    }
}

impl Statuses {
    /// Follows them from now on.
    pub(crate) async fn follow(cluster: &Cluster) -> Self {
        let mut watch = ok(cluster.client().watch(PODS).await);
        let changes: Arc<Mutex<BTreeMap<String, Changes>>> = Arc::default();
        let seen = Arc::clone(&changes);
        let task = tokio::spawn(async move {
            while let Some((kind, object)) = ok(watch.next().await) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let pod = seen.entry(name.to_owned()).or_default();
                if kind == "MODIFIED" && pod.last != object["status"] {
                    pod.count += 1;
                }
                pod.last = object["status"].clone();
            }
        });
        Self { changes, task }
    }

    /// # Panics
    /// When a standing pod's status was written, or any status without a change of it.
    pub(crate) async fn assert_sent_once(&self, requests: &[AuditEvent]) {
        let mut patches: BTreeMap<&str, Patches> = BTreeMap::new();
        for request in requests.iter().filter(|one| one.resource == "pods/status") {
            let pod = patches.entry(&request.name).or_default();
            match request.code {
                200 => pod.answered += 1,
                _ => pod.cut += 1,
            }
        }
        println!(
            "{} status patches of {} pods",
            patches.values().map(|pod| pod.answered).sum::<usize>(),
            patches.len()
        );
        let standing: Vec<_> = patches.keys().filter(|name| is_standing(name)).collect();
        assert_eq!(standing, Vec::<&&str>::new(), "written without a change");
        let poll = || async {
            let seen = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = |name: &str| seen.get(name).map_or(0, |pod| pod.count);
            let differ: Vec<String> = patches
                .iter()
                .filter(|(name, pod)| !pod.may_have_changed(counted(name)))
                .map(|(name, pod)| format!("{name}: {pod:?}, {} changes", counted(name)))
                .collect();
            match differ.as_slice() {
                [] => Poll::Ready(()),
                _ => Poll::Pending(differ.join("; ")),
            }
        };
        ok(until("as many changes as patches", poll).await);
    }
}

impl Drop for Statuses {
    fn drop(&mut self) {
        self.task.abort();
    }
}
