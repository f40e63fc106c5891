//! Pods that come and go: each has to become Ready in its first containers, and to be gone after its
//! deletion.

use std::time::Duration;

use polylet_e2e::{RUNS, ok};
use polylet_harness::Cluster;
use polylet_harness::cluster::{Client, is_ready, pod_path};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::standing_pods::{PODS, bound};

/// Pods that start and end at the same time.
const LANES: usize = 3;
/// A delay by the restart of several services is allowed, a failure is not.
const LIMIT: Duration = Duration::from_secs(60);

/// The churn, until [`Churn::end`].
pub(crate) struct Churn {
    lanes: Vec<(oneshot::Sender<()>, JoinHandle<ChurnResult>)>,
}

/// What has become of the pods.
#[derive(Debug, Default)]
pub(crate) struct ChurnResult {
    pub(crate) pods: usize,
    pub(crate) problems: Vec<String>,
}

impl Churn {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let lane = |number| {
            let (stop, stopped) = oneshot::channel();
            (
                stop,
                tokio::spawn(run(cluster.client().clone(), number, stopped)),
            )
        };
        Self {
            lanes: (0..LANES).map(lane).collect(),
        }
    }

    /// Ends it once the pods of the moment are gone.
    pub(crate) async fn end(self) -> ChurnResult {
        let mut all = ChurnResult::default();
        for (stop, lane) in self.lanes {
            // The receiver is gone if the lane has panicked, which the next line tells.
            let _ = stop.send(());
            let result = ok(lane.await);
            all.pods += result.pods;
            all.problems.extend(result.problems);
        }
        all
    }
}

async fn run(client: Client, lane: usize, mut stopped: oneshot::Receiver<()>) -> ChurnResult {
    let mut result = ChurnResult::default();
    while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
        let name = format!("churn-{lane}-{}", result.pods);
        let lived = tokio::time::timeout(LIMIT, live(&client, &name)).await;
        match lived {
            Ok(problem) => result.problems.extend(problem),
            Err(_) => {
                let object = ok(client.get(&pod_path(&name)).await).unwrap_or_default();
                let problem = format!("{name} neither started nor ended: {}", object["status"]);
                result.problems.push(problem);
            }
        }
        result.pods += 1;
    }
    result
}

/// A pod's life; what was wrong with it.
async fn live(client: &Client, name: &str) -> Option<String> {
    let path = pod_path(name);
    let more = json!({
        "volumes": [
            { "name": "map", "configMap": { "name": "settings" } },
            { "name": "scratch", "emptyDir": {} },
        ],
        "container": {
            "volumeMounts": [{ "name": "map", "mountPath": "/map" }],
            "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1 },
        },
    });
    ok(client.create(PODS, &bound(name, RUNS, &more)).await);
    let mut problem = None;
    let selected = format!("{PODS}?fieldSelector=metadata.name%3D{name}");
    let mut watch = ok(client.watch(&selected).await);
    let mut deleted = false;
    while let Some((kind, object)) = ok(watch.next().await) {
        let status = &object["status"];
        let restarts = &status["containerStatuses"][0]["restartCount"];
        let has_failed = status["phase"] == "Failed" && !deleted;
        if problem.is_none() && (has_failed || restarts.as_u64().is_some_and(|count| count > 0)) {
            problem = Some(format!("{name}: {status}"));
        }
        if kind == "DELETED" {
            return problem;
        }
        if !deleted && (is_ready(&object) || problem.is_some()) {
            ok(client.delete(&path, &json!({})).await);
            deleted = true;
        }
    }
    Some(format!("{name}: the watch ended"))
}
