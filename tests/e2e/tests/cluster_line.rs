//! A line to the API server that goes dead while nobody closes it.

use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, node_with, ok, pod};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn dead_connections_are_noticed() {
    let cluster = cluster().await;
    let line = ok(cluster.line().await);
    let node = node_with(ok(cluster.node_options_by("node", &line.server()))).await;
    ok(cluster.wait_node_ready("node").await);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
    let renewed = |lease: &Value| lease["spec"]["renewTime"].clone();
    let before = ok(cluster.wait(lease, "to be there", |_| true).await);

    line.go_dead();
    let dead_since = Instant::now();
    let object: Value = serde_json::from_str(&pod("later", RUNS, &json!({}))).unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    ok(cluster.client().create(pods, &object).await);
    ok(cluster.wait_pod_ready("later").await);
    let newer = |lease: &Value| renewed(lease) != renewed(&before);
    ok(cluster.wait(lease, "to be renewed", newer).await);
    let took = dead_since.elapsed();
    println!("noticed within {} ms", took.as_millis());
    assert!(took < Duration::from_secs(25), "{took:?}");
    ok(node.remove());
    ok(cluster.remove());
}
