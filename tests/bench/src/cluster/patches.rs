use std::time::{Duration, Instant};

use polylet_harness::cluster::{ObjectWatch, Patch};
use polylet_harness::{Cluster, HarnessError};
use serde_json::{Value, json};

use super::agent::PODS;
use crate::pod_hooks::PodHooks;

const NAME: &str = "patched";

/// The requests that any agent and its user cause at the API server: for a start, the pod's creation and a
/// status patch to Ready; for a deletion, the request, a status patch and the removal. These pods are bound to
/// no real node.
pub(super) struct ApiServerBaseline<'a> {
    cluster: &'a Cluster,
    manifest: Value,
}

impl<'a> ApiServerBaseline<'a> {
    pub(super) fn new(cluster: &'a Cluster, manifest: Value) -> Self {
        Self { cluster, manifest }
    }

    async fn patch(&self, n: usize, phase: &str, state: Value) -> Result<(), HarnessError> {
        let is_ready = phase == "Running";
        let conditions = [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
        ];
        let condition = if is_ready { "True" } else { "False" };
        let conditions = conditions.map(|kind| json!({ "type": kind, "status": condition }));
        let status = json!({
            "phase": phase,
            "conditions": conditions,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "containerStatuses": [{
                "name": "main", "image": "nothing", "imageID": "", "ready": is_ready,
                "restartCount": 0, "started": is_ready, "state": state,
            }],
        });
        let path = format!("{PODS}/{}/status", name(n));
        let patch = json!({ "status": status });
        let client = self.cluster.client();
        client.patch(&path, Patch::Strategic, &patch).await?;
        Ok(())
    }

    async fn delete(&self, n: usize, options: &Value) -> Result<(), HarnessError> {
        let path = format!("{PODS}/{}", name(n));
        self.cluster.client().delete(&path, options).await?;
        Ok(())
    }
}

impl PodHooks for ApiServerBaseline<'_> {
    async fn before_start(&self, n: usize) -> Result<(), HarnessError> {
        let mut pod = self.manifest.clone();
        pod["metadata"] = json!({ "name": name(n) });
        pod["spec"]["nodeName"] = json!("nobody");
        self.cluster.client().create(PODS, &pod).await?;
        Ok(())
    }

    async fn after_start(&self, n: usize) -> Result<(), HarnessError> {
        self.patch(n, "Running", json!({ "running": {} })).await
    }

    async fn before_stop(&self, n: usize) -> Result<(), HarnessError> {
        self.delete(n, &Value::Null).await
    }

    async fn after_stop(&self, n: usize) -> Result<(), HarnessError> {
        let state = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        self.patch(n, "Succeeded", state).await?;
        self.delete(n, &json!({ "gracePeriodSeconds": 0 })).await
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
