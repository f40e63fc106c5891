use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use polylet_harness::Cluster;
use polylet_harness::cluster::is_ready;
use polylet_vm::ok;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::node::{SystemdNode, identity};

/// Follows all pods: what happens to them shows in their statuses.
pub(crate) struct PodWatch {
    disturbances: Arc<Mutex<Vec<String>>>,
    before: BTreeMap<String, String>,
    task: JoinHandle<()>,
}

impl PodWatch {
    /// Begins with the pods as they are, all of them Ready.
    pub(crate) async fn start(cluster: &Cluster, before: BTreeMap<String, String>) -> Self {
        let path = "/api/v1/namespaces/default/pods";
        let mut watch = ok(cluster.client().watch(path).await);
        let disturbances: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, found) = (before.clone(), Arc::clone(&disturbances));
        let task = tokio::spawn(async move {
            while let Ok(Some((_, pod))) = watch.next().await {
                if let Some(disturbance) = disturbance(&known, &pod) {
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(disturbance);
                }
            }
        });
        Self {
            disturbances,
            before,
            task,
        }
    }

    /// Fails if a container was replaced or restarted since the start, or a pod was not Ready for a while.
    pub(crate) async fn assert_undisturbed(self, node: &SystemdNode, when: &str) {
        let mut after = node.identities().await;
        after.retain(|name, _| self.before.contains_key(name));
        let is_watched = !self.task.is_finished();
        self.task.abort();
        let disturbances = std::mem::take(
            &mut *self
                .disturbances
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        if !disturbances.is_empty() || after != self.before {
            node.vm.diagnose().await;
        }
        assert!(disturbances.is_empty(), "{when}: {disturbances:#?}");
        assert_eq!(after, self.before, "{when}");
        assert!(is_watched, "{when}: the watch of pods ended");
    }
}

fn disturbance(before: &BTreeMap<String, String>, pod: &Value) -> Option<String> {
    let (name, now) = identity(pod);
    let before = before.get(&name)?;
    if !is_ready(pod) {
        return Some(format!(
            "{name} is not Ready: {}",
            pod["status"]["conditions"]
        ));
    }
    (*before != now).then(|| format!("{name}: {before} became {now}"))
}
