use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylet_harness::Cluster;
use polylet_harness::wait::timeout;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::normalize;

type Versions = BTreeMap<String, Vec<(Instant, String, Arc<Value>)>>;

/// Every version of every pod of the namespace since the watch began.
#[derive(Debug)]
pub(super) struct PodObserver {
    versions: Arc<Mutex<Versions>>,
    task: JoinHandle<()>,
}

impl PodObserver {
    pub(super) async fn spawn(cluster: &Cluster) -> Self {
        let path = "/api/v1/namespaces/default/pods";
        let mut watch = crate::ok(cluster.client().watch(path).await);
        let versions = Arc::<Mutex<Versions>>::default();
        let store = versions.clone();
        let task = tokio::spawn(async move {
            let mut ids: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
            while let Ok(Some((kind, mut pod))) = watch.next().await {
                let uid = pod["metadata"]["uid"].to_string();
                number(&mut pod["status"], ids.entry(uid).or_default());
                let name = pod["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
                let pod_versions = store.entry(name).or_default();
                pod_versions.push((Instant::now(), kind, Arc::new(pod)));
            }
        });
        Self { versions, task }
    }

    fn last(&self, name: &str) -> Option<(Instant, String, Arc<Value>)> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(name)?.last().cloned()
    }

    /// The first pod whose name has this prefix.
    pub(super) async fn wait_for_name(&self, name: &str) -> String {
        loop {
            {
                let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
                let found = versions.keys().find(|key| key.starts_with(name));
                if let Some(found) = found {
                    return found.clone();
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The pod once the condition holds and its status has settled; its last version otherwise.
    pub(super) async fn wait(
        &self,
        name: &str,
        condition: &fn(&Value) -> bool,
        quiet: Option<Duration>,
    ) -> Result<Arc<Value>, Arc<Value>> {
        let started = Instant::now();
        loop {
            let last = self.last(name);
            if let Some((since, _, pod)) = &last
                && condition(pod)
                && quiet.is_none_or(|quiet| since.elapsed() >= quiet)
            {
                return Ok(pod.clone());
            }
            if started.elapsed() >= timeout() {
                return Err(last.map(|(_, _, pod)| pod).unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The last version of a deleted pod.
    pub(super) async fn wait_deleted(&self, name: &str) -> Result<Arc<Value>, Arc<Value>> {
        let started = Instant::now();
        loop {
            let last = self.last(name);
            match last {
                Some((_, kind, pod)) if kind == "DELETED" => return Ok(pod),
                Some((_, _, pod)) if started.elapsed() >= timeout() => return Err(pod),
                None if started.elapsed() >= timeout() => return Err(Arc::default()),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Distinct transient lines of the pod, in order.
    pub(super) fn transient_lines(&self, name: &str) -> Vec<String> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for (_, _, pod) in versions.get(name).into_iter().flatten() {
            for line in normalize::transient_lines(pod) {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// The last version of the pod that had an address, if any.
    pub(super) fn last_with_address(&self, name: &str) -> Arc<Value> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || versions.get(name).into_iter().flatten().rev();
        let mut known = all().filter(|(_, _, pod)| pod["status"]["podIP"].is_string());
        let pod = known.next().or_else(|| all().next());
        pod.map(|(_, _, pod)| pod.clone()).unwrap_or_default()
    }

    /// The normalized output of the pod's container.
    pub(super) fn output(&self, name: &str, text: &str) -> Vec<String> {
        let pod = self.last_with_address(name);
        text.lines()
            .map(|line| normalize::plain(line, &pod))
            .collect()
    }
}

/// Replaces container ids by their order of appearance per name.
fn number(status: &mut Value, ids: &mut BTreeMap<String, Vec<String>>) {
    let lists = [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ];
    for list in lists {
        for container in status[list].as_array_mut().into_iter().flatten() {
            let name = container["name"].to_string();
            let known = ids.entry(name).or_default();
            for field in ["/lastState/terminated", "/state/terminated", ""] {
                if let Some(id) = container.pointer_mut(&format!("{field}/containerID")) {
                    number_one(id, known);
                }
            }
        }
    }
}

fn number_one(id: &mut Value, known: &mut Vec<String>) {
    let Some(text) = id.as_str().filter(|text| !text.is_empty()) else {
        return;
    };
    let at = known.iter().position(|known| known == text);
    let at = at.unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    });
    *id = format!("container {at}").into();
}

impl Drop for PodObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}
