use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polylet_harness::Cluster;
use polylet_harness::wait::patience;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::lines;

type Versions = BTreeMap<String, Vec<(Instant, String, Arc<Value>)>>;

/// Every version of every pod of the namespace, from the moment on that it follows.
#[derive(Debug)]
pub(super) struct Seen {
    versions: Arc<Mutex<Versions>>,
    task: JoinHandle<()>,
}

impl Seen {
    pub(super) async fn follow(cluster: &Cluster) -> Self {
        let path = "/api/v1/namespaces/default/pods";
        let mut watch = crate::ok(cluster.client().watch(path).await);
        let versions = Arc::<Mutex<Versions>>::default();
        let kept = versions.clone();
        let task = tokio::spawn(async move {
            let mut ids: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
            while let Ok(Some((kind, mut pod))) = watch.next().await {
                let uid = pod["metadata"]["uid"].to_string();
                number(&mut pod["status"], ids.entry(uid).or_default());
                let name = pod["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let of_pod = kept.entry(name).or_default();
                of_pod.push((Instant::now(), kind, Arc::new(pod)));
            }
        });
        Self { versions, task }
    }

    fn last(&self, name: &str) -> Option<(Instant, String, Arc<Value>)> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.get(name)?.last().cloned()
    }

    /// The first pod whose name begins so.
    pub(super) async fn begins(&self, name: &str) -> String {
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

    /// The pod when it is as wanted, and has been quiet for so long; else what it was last.
    pub(super) async fn wait(
        &self,
        name: &str,
        wanted: &fn(&Value) -> bool,
        quiet: Option<Duration>,
    ) -> Result<Arc<Value>, Arc<Value>> {
        let begun = Instant::now();
        loop {
            let last = self.last(name);
            if let Some((since, _, pod)) = &last
                && wanted(pod)
                && quiet.is_none_or(|quiet| since.elapsed() >= quiet)
            {
                return Ok(pod.clone());
            }
            if begun.elapsed() >= patience() {
                return Err(last.map(|(_, _, pod)| pod).unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The last version of a pod that is gone.
    pub(super) async fn gone(&self, name: &str) -> Result<Arc<Value>, Arc<Value>> {
        let begun = Instant::now();
        loop {
            let last = self.last(name);
            match last {
                Some((_, kind, pod)) if kind == "DELETED" => return Ok(pod),
                Some((_, _, pod)) if begun.elapsed() >= patience() => return Err(pod),
                None if begun.elapsed() >= patience() => return Err(Arc::default()),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Each thing that was said of the pod, in order, once.
    pub(super) fn passing(&self, name: &str) -> Vec<String> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut said = Vec::new();
        for (_, _, pod) in versions.get(name).into_iter().flatten() {
            for line in lines::passing(pod) {
                if !said.contains(&line) {
                    said.push(line);
                }
            }
        }
        said
    }

    /// The pod when it was last known by its address, if it ever had one.
    pub(super) fn whole(&self, name: &str) -> Arc<Value> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || versions.get(name).into_iter().flatten().rev();
        let mut known = all().filter(|(_, _, pod)| pod["status"]["podIP"].is_string());
        let pod = known.next().or_else(|| all().next());
        pod.map(|(_, _, pod)| pod.clone()).unwrap_or_default()
    }

    /// What the pod's container wrote, without what only this pod has.
    pub(super) fn said(&self, name: &str, text: &str) -> Vec<String> {
        let pod = self.whole(name);
        text.lines().map(|line| lines::plain(line, &pod)).collect()
    }
}

/// Containers' ids by the order in which they were seen first of one name, in place of the
/// runtime's.
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
            for of in ["/lastState/terminated", "/state/terminated", ""] {
                if let Some(id) = container.pointer_mut(&format!("{of}/containerID")) {
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

impl Drop for Seen {
    fn drop(&mut self) {
        self.task.abort();
    }
}
