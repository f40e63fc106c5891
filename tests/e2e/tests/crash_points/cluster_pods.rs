//! The same pod, of the API server: what is written there is right in the end as well.

use polylet_e2e::{cluster, node_with, ok};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::error::report;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, NodeOptions};
use serde_json::{Value, json};

use crate::control::{Control, Point};
use crate::orphans;
use crate::pods::TestPod;
use crate::results::{Results, verify};
use crate::run::CrashRun;

const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) async fn start_and_stop() {
    let cluster = cluster().await;
    let control = Control::new();
    let node = node_with(NodeOptions {
        env: control.environment(),
        ..ok(cluster.node_options("node"))
    })
    .await;
    ok(cluster.wait_node_ready("node").await);
    objects(&cluster).await;
    let mut run = CrashRun::with(node, control).await;
    let mut recorded = (Vec::new(), Vec::new());
    for number in 0..2 {
        let pod = TestPod::new(&run.node, number);
        run.control.record();
        let uid = started(&cluster, &run.node, &pod).await.expect("a start");
        recorded.0 = run.control.recorded(2);
        run.control.record();
        stopped(&cluster, &run.node, &pod, &uid)
            .await
            .expect("a stop");
        recorded.1 = run.control.recorded(2);
    }
    // The others do the same as without a cluster.
    let of_cluster = |point: &Point| {
        let services = ["pod-config", "status-reporter", "node-api"];
        services.contains(&point.service.as_str())
    };
    recorded.0.retain(of_cluster);
    recorded.1.retain(of_cluster);
    let (starts, stops) = recorded;
    let mut start = Results::new("start in a cluster");
    let mut stop = Results::new("stop in a cluster");
    for at in 0..starts.len().max(stops.len()) {
        run.settle().await.expect("a node in step");
        let pod = TestPod::new(&run.node, at + 2);
        if let Some(point) = starts.get(at) {
            run.control.arm(point);
        }
        let mut uid = started(&cluster, &run.node, &pod).await;
        if let Some(point) = starts.get(at) {
            let (has_crashed, well) = run.recovered(point).await;
            start.add(point, has_crashed, uid.clone().map(drop).and(well));
        }
        if let Some(point) = stops.get(at) {
            run.control.arm(point);
        }
        if uid.is_err() {
            let object = ok(cluster.client().get(&pod_path(&pod.name)).await);
            uid = Ok(uid_of(&object.unwrap_or_default()));
        }
        let end = match uid {
            Ok(uid) => stopped(&cluster, &run.node, &pod, &uid).await,
            Err(error) => Err(error),
        };
        if let Some(point) = stops.get(at) {
            let (has_crashed, well) = run.recovered(point).await;
            stop.add(point, has_crashed, end.and(well));
        }
    }
    let failures = [start.finish(), stop.finish()].concat();
    verify(&failures);
    run.node.remove().expect("nothing left of the node");
    ok(cluster.remove());
}

/// The objects that the pod refers to.
async fn objects(cluster: &Cluster) {
    for (kind, data) in [("configmaps", "data"), ("secrets", "stringData")] {
        let object = json!({ "metadata": { "name": "web" }, data: { "key": "value" } });
        let path = format!("/api/v1/namespaces/default/{kind}");
        ok(cluster.client().create(&path, &object).await);
    }
}

fn uid_of(pod: &Value) -> String {
    pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Creates the pod and waits until the API server shows it as it is; its uid.
async fn started(cluster: &Cluster, node: &Node, pod: &TestPod) -> Result<String, String> {
    let created = cluster.client().create(PODS, &pod.object()).await;
    let uid = uid_of(&created.map_err(|e| report(&e))?);
    let path = pod_path(&pod.name);
    let ready = cluster.wait(&path, "is Ready", is_ready).await;
    ready.map_err(|e| report(&e))?;
    until(format!("the status of {} to be true", pod.name), || async {
        let object = match cluster.client().get(&path).await {
            Ok(object) => object.unwrap_or_default(),
            Err(error) => return Poll::Pending(report(&error)),
        };
        let status = &object["status"];
        let mut reported: Vec<String> = ["initContainerStatuses", "containerStatuses"]
            .iter()
            .filter_map(|list| status[list].as_array())
            .flatten()
            .filter_map(|one| one["containerID"].as_str().map(str::to_owned))
            .collect();
        reported.sort();
        let containers = match node.containerd.cri().containers().await {
            Ok(containers) => containers,
            Err(error) => return Poll::Pending(report(&error)),
        };
        let mut found: Vec<String> = containers
            .iter()
            .filter(|one| one.labels.get("io.kubernetes.pod.uid") == Some(&uid))
            .map(|one| format!("containerd://{}", one.id))
            .collect();
        found.sort();
        let restarts = &status["containerStatuses"][0]["restartCount"];
        if found == reported && is_ready(&object) && *restarts == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("containers {found:?}, reported {status}"))
        }
    })
    .await
    .map_err(|e| report(&e))?;
    pod.verify_started(node)?;
    Ok(uid)
}

/// Deletes the pod and waits until nothing is left of it, here and at the API server.
async fn stopped(cluster: &Cluster, node: &Node, pod: &TestPod, uid: &str) -> Result<(), String> {
    let path = pod_path(&pod.name);
    // It may be gone already.
    let _ = cluster.client().delete(&path, &Value::Null).await;
    let absent = cluster.wait_absent(&path).await;
    absent.map_err(|e| report(&e))?;
    orphans::wait_for_none(node, uid, &pod.name).await?;
    pod.verify_stopped(node)
}
