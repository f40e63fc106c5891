//! A pod that fills its volume beyond the limit is evicted, and deleted.

use polylet_harness::error::report;
use polylet_harness::{Node, NodeOptions, PodView};
use serde_json::json;

use crate::orphans;
use crate::results::{Results, verify};
use crate::run::CrashRun;

/// What the status says.
const MESSAGE: &str = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";

pub(crate) async fn evict() {
    let options = NodeOptions {
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    };
    let mut run = CrashRun::start(options).await;
    let name = name(0);
    full_pod(&run.node, &name).await.expect("a running pod");
    run.control.record();
    let uid = evicted(&run.node, &name)
        .await
        .expect("an eviction without crash");
    let mut points = run.control.recorded(2);
    // Probes of the other pod go on meanwhile.
    points.retain(|point| point.service != "prober");
    removed(&run.node, &name, &uid).await.expect("a removal");
    let mut results = Results::new("eviction");
    for (at, point) in points.iter().enumerate() {
        run.settle().await.expect("a node in step");
        let name = self::name(at + 1);
        let mut end = full_pod(&run.node, &name).await;
        run.control.arm(point);
        if end.is_ok() {
            end = evicted(&run.node, &name).await;
        }
        let (has_crashed, well) = run.recovered(point).await;
        if let Ok(uid) = end.clone() {
            end = removed(&run.node, &name, &uid).await.map(|()| uid);
        } else {
            let _ = run.node.take(&format!("{name}.json"));
        }
        results.add(point, has_crashed, end.map(drop).and(well));
    }
    verify(&results.finish());
    run.node.remove().expect("nothing left of the node");
}

fn name(number: usize) -> String {
    format!("full-{number}")
}

/// Creates a pod that fills its volume once it is told to, and waits until it runs; its uid.
async fn full_pod(node: &Node, name: &str) -> Result<String, String> {
    let script = "until test -e /go/full; do sleep 0.1; done; \
        dd if=/dev/zero of=/v/big bs=1M count=3; \
        trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
    let go = node.scratch().join("go").join(name);
    std::fs::create_dir_all(&go).map_err(|error| error.to_string())?;
    let more = json!({
        "volumes": [
            { "name": "v", "emptyDir": { "sizeLimit": "1Mi" } },
            { "name": "go", "hostPath": { "path": go } },
        ],
        "container": { "volumeMounts": [
            { "name": "v", "mountPath": "/v" },
            { "name": "go", "mountPath": "/go" },
        ] },
    });
    let manifest = polylet_e2e::pod(name, script, &more);
    let put = node.put(&format!("{name}.json"), &manifest);
    put.map_err(|e| report(&e))?;
    let ready = node.wait_ready(name).await.map_err(|e| report(&e))?;
    Ok(ready.uid)
}

/// Lets the pod fill its volume, and waits until it is evicted and its container has ended; its uid.
async fn evicted(node: &Node, name: &str) -> Result<String, String> {
    let go = node.scratch().join("go").join(name).join("full");
    std::fs::write(go, "").map_err(|error| error.to_string())?;
    let is_evicted = |pod: &PodView| {
        let ended = pod.containers().iter().all(|one| one.state != "running");
        pod.phase() == "Failed" && pod.reason() == "Evicted" && ended
    };
    let pod = node.wait_pod(name, "to be evicted", is_evicted).await;
    let pod = pod.map_err(|e| report(&e))?;
    let restarts: Vec<u64> = pod.containers().iter().map(|one| one.restarts).collect();
    if pod.message() != MESSAGE || restarts != [0] {
        return Err(format!("{} with restarts {restarts:?}", pod.line()));
    }
    Ok(pod.uid)
}

async fn removed(node: &Node, name: &str, uid: &str) -> Result<(), String> {
    node.take(&format!("{name}.json")).map_err(|e| report(&e))?;
    node.wait_gone(name).await.map_err(|e| report(&e))?;
    orphans::wait_for_none(node, uid, name).await
}
