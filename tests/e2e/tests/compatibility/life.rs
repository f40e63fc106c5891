//! What pods go through with each combination.

use std::fs;
use std::path::PathBuf;

use polylet_e2e::{RUNS, exec, ok, pod, try_exec};
use polylet_harness::http;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

/// A ConfigMap for a volume.
pub(crate) const CONFIG_MAP: (&str, &str) = (
    "settings.json",
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"greeting": "hello"}}"#,
);

/// A pod with an init container, three kinds of volumes and a probe that becomes unready and ready again,
/// one of whose containers restarts; a pod over its storage limit, which is evicted; requests to the node
/// API; and the graceful deletion of both.
pub(crate) async fn pods_live_and_are_evicted(node: &Node) {
    ok(node.put("life.json", &life(node)));
    ok(node.put("over.json", &over_its_limit()));
    let pod = ok(node.wait_ready("life").await);
    let init = pod.container("first").expect("an init container");
    assert_eq!(init.exit_code, Some(0), "{init:?}");
    assert_eq!(
        exec(node, &pod, "main", "cat /scratch/copied").await,
        "hello"
    );
    the_node_api_responds(node, &pod).await;

    exec(node, &pod, "main", "rm /scratch/ready").await;
    ok(node
        .wait_pod("life", "to be unready", |pod| !pod.is_ready())
        .await);
    exec(node, &pod, "main", "touch /scratch/ready").await;
    let pod = ok(node.wait_ready("life").await);

    // A pod that is served again within a second of its removal, as in the combination after another one, goes on
    // counting.
    let restarts = pod.container("main").map_or(0, |main| main.restarts);
    // Ends with its first process, by which the exec may be ended, too.
    let _ = try_exec(node, &pod, "main", "kill -TERM 1").await;
    let has_restarted = |pod: &PodView| {
        let main = pod.container("main");
        pod.is_ready() && main.is_some_and(|main| main.restarts == restarts + 1)
    };
    ok(node
        .wait_pod("life", "to have a container restarted", has_restarted)
        .await);

    let evicted = ok(node
        .wait_pod("over", "to be evicted", |pod| pod.reason() == "Evicted")
        .await);
    assert_eq!(evicted.phase(), "Failed");

    let ended = host_directory(node).join("ended");
    ok(fs::remove_file(&ended));
    for name in ["life", "over"] {
        ok(node.take(&format!("{name}.json")));
    }
    for name in ["life", "over"] {
        ok(node.wait_gone(name).await);
    }
    assert!(ended.exists(), "ended without SIGTERM");
}

fn host_directory(node: &Node) -> PathBuf {
    node.scratch().join("host")
}

fn life(node: &Node) -> String {
    let mounts = json!([
        { "name": "settings", "mountPath": "/settings" },
        { "name": "scratch", "mountPath": "/scratch" },
        { "name": "host", "mountPath": "/host" },
    ]);
    let script = "trap 'touch /host/ended; exit 0' TERM; touch /scratch/ready; \
                  while :; do sleep 3600 & wait $!; done";
    let more = json!({
        "volumes": [
            { "name": "settings", "configMap": { "name": "settings" } },
            { "name": "scratch", "emptyDir": {} },
            { "name": "host", "hostPath": {
                "path": host_directory(node), "type": "DirectoryOrCreate",
            } },
        ],
        "terminationGracePeriodSeconds": 10,
        "initContainers": [{
            "name": "first", "image": "polylet-test:1", "volumeMounts": mounts,
            "command": ["sh", "-c", "cat /settings/greeting > /scratch/copied"],
        }],
        "container": {
            "volumeMounts": mounts,
            "readinessProbe": {
                "exec": { "command": ["test", "-e", "/scratch/ready"] },
                "periodSeconds": 1, "failureThreshold": 1,
            },
        },
    });
    pod("life", script, &more)
}

fn over_its_limit() -> String {
    let script = format!("dd if=/dev/zero of=/v/big bs=1M count=3; {RUNS}");
    let more = json!({
        "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Mi" } }],
        "container": { "volumeMounts": [{ "name": "v", "mountPath": "/v" }] },
    });
    pod("over", &script, &more)
}

/// Pods, statistics and counts of probes: of status-reporter, eviction, pleg and prober.
async fn the_node_api_responds(node: &Node, pod: &PodView) {
    let pods = get(node, "/pods").await;
    assert!(pods.contains(&pod.uid), "{pods}");
    let running = get(node, "/runningpods/").await;
    assert!(running.contains(&pod.name), "{running}");
    let probes = get(node, "/metrics/probes").await;
    assert!(
        probes.contains("prober_probe_total{container=\"main\""),
        "{probes}"
    );
    ok(until("the pod in the statistics", || async {
        let text = get(node, "/stats/summary").await;
        let summary: Value = serde_json::from_str(&text).unwrap_or_default();
        let pods = summary["pods"].as_array().into_iter().flatten();
        let mut uids = pods.map(|found| &found["podRef"]["uid"]);
        match uids.any(|uid| *uid == *pod.uid) {
            true => Poll::Ready(()),
            false => Poll::Pending(text),
        }
    })
    .await);
}

async fn get(node: &Node, path: &str) -> String {
    let tls = ok(node.pki().tls(false));
    let response = ok(http::get_tls(tls, node.ports().0, path).await);
    assert_eq!(response.code(), 200, "{path}: {response:?}");
    response.body
}
