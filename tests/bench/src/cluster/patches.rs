use std::time::{Duration, Instant};

use polylet_harness::cluster::{Patch, Watch};
use polylet_harness::{Cluster, HarnessError};
use serde_json::json;

use super::side::PODS;

const NAME: &str = "patched";

/// What the API server itself takes from a patch of a status to a watcher: a pod that no node has.
pub(super) struct Patches<'a> {
    cluster: &'a Cluster,
    watch: Watch,
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
        let heard = async {
            while let Some((_, pod)) = watch.next().await? {
                if pod["status"]["containerStatuses"][0]["restartCount"] == json!(count) {
                    break;
                }
            }
            Ok(began.elapsed())
        };
        let (_, heard) = tokio::try_join!(sent, heard)?;
        Ok(heard)
    }

    pub(super) async fn remove(self) -> Result<(), HarnessError> {
        let path = format!("{PODS}/{NAME}");
        self.cluster.client().delete(&path, &json!(null)).await?;
        Ok(())
    }
}
