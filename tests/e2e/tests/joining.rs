//! A node joins a cluster: its Node object, its lease, its certificates, and who may ask it what.

use std::time::{Duration, Instant};

use polylet_e2e::{cluster, node_with, ok};
use polylet_harness::cluster::is_ready;
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/node";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_node_registers_and_is_kept_up_to_date() {
    let mut cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["registerWithTaints"] = json!([{ "key": "kept", "effect": "NoSchedule" }]);
    options.kubelet["systemReserved"] = json!({ "cpu": "200m", "memory": "128Mi" });
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    options.polylet["nodeLabels"] = json!({ "shelf": "3" });
    let mut watch = ok(cluster.client().watch("/api/v1/nodes").await);
    let begun = Instant::now();
    let mut node = node_with(options).await;

    // The very first word of it says that it is Ready.
    let (_, first) = ok(watch.next().await).unwrap();
    println!(
        "in the cluster {} ms after the start began",
        begun.elapsed().as_millis()
    );
    assert!(is_ready(&first), "{}", first["status"]["conditions"]);
    let uid = first["metadata"]["uid"].as_str().unwrap().to_owned();
    let labels = &first["metadata"]["labels"];
    assert_eq!(
        (&labels["shelf"], &labels["kubernetes.io/hostname"]),
        (&json!("3"), &json!("node"))
    );
    let taints = first["spec"]["taints"].as_array().unwrap();
    assert!(
        taints.iter().any(|taint| taint["key"] == "kept"),
        "{taints:?}"
    );
    let status = &first["status"];
    let version = status["nodeInfo"]["kubeletVersion"].as_str().unwrap();
    assert!(version.starts_with("v1.36.3+polylet"), "{version}");
    let runtime = status["nodeInfo"]["containerRuntimeVersion"]
        .as_str()
        .unwrap();
    assert!(runtime.starts_with("containerd://"), "{runtime}");
    assert_eq!(
        status["daemonEndpoints"]["kubeletEndpoint"]["Port"],
        node.ports().0
    );
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&first, kind)["status"], "False", "{kind}");
    }
    assert_ne!(
        status["allocatable"]["memory"],
        status["capacity"]["memory"]
    );
    assert!(!status["images"].as_array().unwrap().is_empty());

    // The lease belongs to it and is renewed at a quarter of its duration.
    let lease = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], uid.as_str());
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
    let renewed = |before: Value| {
        let before = before["spec"]["renewTime"].clone();
        move |lease: &Value| lease["spec"]["renewTime"] != before
    };
    let since = Instant::now();
    let second = ok(cluster.wait(LEASE, "to be renewed", renewed(lease)).await);
    ok(cluster
        .wait(LEASE, "to be renewed again", renewed(second))
        .await);
    assert!(since.elapsed() < Duration::from_secs(4));

    // Restarts of the service that keeps it say nothing new.
    let (_, mark) = ok(cluster.requests(0));
    ok(node.kill("status-reporter").await);
    let patched = |since| {
        let (requests, _) = ok(cluster.requests(since));
        requests
            .into_iter()
            .filter(|r| r.resource == "nodes/status")
            .collect::<Vec<_>>()
    };
    let second = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    ok(cluster
        .wait(LEASE, "to be renewed by the next life", renewed(second))
        .await);
    node_says(&node, "registered").await;
    assert!(patched(mark).len() <= 1, "{:?}", patched(mark));

    // What the runtime says is told at once.
    let begun = Instant::now();
    node.containerd.down(true);
    let down = ok(cluster
        .wait(NODE, "to be NotReady", |node| !is_ready(node))
        .await);
    println!(
        "NotReady {} ms after the runtime went",
        begun.elapsed().as_millis()
    );
    assert_eq!(condition(&down, "Ready")["reason"], "KubeletNotReady");
    ok(node.containerd.up().await);
    ok(cluster.wait_node_ready("node").await);

    // The server goes away and comes back: the lease goes on.
    cluster.stop_api();
    ok(cluster.start_api().await);
    let held = ok(cluster.wait(LEASE, "to be there", |_| true).await);
    ok(cluster
        .wait(
            LEASE,
            "to be renewed after the server's restart",
            renewed(held),
        )
        .await);

    // Deleted by hand, it comes back with the next start, as the kubelet's does.
    ok(cluster.client().delete(NODE, &Value::Null).await);
    ok(cluster.wait_absent(NODE).await);
    node.down();
    ok(node.up().await);
    let again = ok(cluster.wait_node_ready("node").await);
    assert_ne!(again["metadata"]["uid"], uid.as_str());
    ok(node.remove());
    ok(cluster.remove());
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let all = node["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {all:?}"))
}

/// Waits until the node's log holds a line.
async fn node_says(node: &polylet_harness::Node, what: &str) {
    let log = node.log();
    let said = || {
        std::fs::read_to_string(&log)
            .unwrap_or_default()
            .contains(what)
    };
    let until = Instant::now() + Duration::from_secs(30);
    while !said() {
        assert!(Instant::now() < until, "the log never says {what:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
