use std::time::{Duration, Instant};

use polylet_harness::cluster::{ObjectWatch, Patch};
use polylet_harness::{Cluster, HarnessError};
use serde_json::{Value, json};

use super::agent::PODS;

const NAME: &str = "patched";

/// The minimal API requests for the start of a pod: its creation and a status patch to Ready. These
/// pods are bound to no real node.
pub(super) struct ApiServerBaseline<'a> {
    cluster: &'a Cluster,
}

impl<'a> ApiServerBaseline<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }

    pub(super) async fn make(&self, n: usize, manifest: &Value) -> Result<(), HarnessError> {
        let mut pod = manifest.clone();
        pod["metadata"] = json!({ "name": name(n) });
        pod["spec"]["nodeName"] = json!("nobody");
        self.cluster.client().create(PODS, &pod).await?;
        Ok(())
    }

    pub(super) async fn tell(&self, n: usize) -> Result<(), HarnessError> {
        let conditions = [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
        ];
        let conditions = conditions.map(|kind| json!({ "type": kind, "status": "True" }));
        let status = json!({
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "containerStatuses": [{
                "name": "main", "image": "nothing", "imageID": "", "ready": true,
                "restartCount": 0, "started": true, "state": { "running": {} },
            }],
        });
        let path = format!("{PODS}/{}/status", name(n));
        let patch = json!({ "status": status });
        self.cluster
            .client()
            .patch(&path, Patch::Strategic, &patch)
            .await?;
        Ok(())
    }

    pub(super) async fn remove(&self, count: usize) -> Result<(), HarnessError> {
        for n in 0..count {
            let path = format!("{PODS}/{}", name(n));
            let at_once = json!({ "gracePeriodSeconds": 0 });
            self.cluster.client().delete(&path, &at_once).await?;
        }
        Ok(())
    }
}

fn name(n: usize) -> String {
    format!("shared-{n}")
}

/// Measures the API server's own time from a status patch to the watch event, with an unbound pod.
pub(super) struct Patches<'a> {
    cluster: &'a Cluster,
    watch: ObjectWatch,
    count: i64,
}

impl<'a> Patches<'a> {
    pub(super) async fn new(cluster: &'a Cluster) -> Result<Self, HarnessError> {
        let pod = json!({
            "metadata": { "name": NAME },
            "spec": {
                "schedulerName": "nobody",
                "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "nothing" }],
            },
        });
        cluster.client().create(PODS, &pod).await?;
        let path = format!("{PODS}?fieldSelector=metadata.name%3D{NAME}");
        let watch = cluster.client().watch(&path).await?;
        Ok(Self {
            cluster,
            watch,
            count: 0,
        })
    }

    pub(super) async fn one(&mut self) -> Result<Duration, HarnessError> {
        self.count += 1;
        let count = self.count;
        let state = json!({ "terminated": { "exitCode": 137, "reason": "Error" } });
        let status = json!({ "phase": "Failed", "containerStatuses": [{
            "name": "main", "image": "nothing", "imageID": "", "ready": false,
            "restartCount": count, "state": state,
        }] });
        let began = Instant::now();
        let path = format!("{PODS}/{NAME}/status");
        let patch = json!({ "status": status });
        let sent = self.cluster.client().patch(&path, Patch::Strategic, &patch);
        let watch = &mut self.watch;
        let observed = async {
            while let Some((_, pod)) = watch.next().await? {
                if pod["status"]["containerStatuses"][0]["restartCount"] == json!(count) {
                    break;
                }
            }
            Ok(began.elapsed())
        };
        let (_, observed) = tokio::try_join!(sent, observed)?;
        Ok(observed)
    }

    pub(super) async fn remove(self) -> Result<(), HarnessError> {
        let path = format!("{PODS}/{NAME}");
        self.cluster.client().delete(&path, &json!(null)).await?;
        Ok(())
    }
}
