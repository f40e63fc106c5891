//! Two nodes of one name: nothing keeps the second one out, as with upstream; the API server must live
//! through it, and the name is as before once one of them is gone.

use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, cluster_node, node_with, ok, pod};
use polylet_harness::cluster::pod_path;
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn two_nodes_of_one_name() {
    let cluster = cluster().await;
    let first = cluster_node(&cluster).await;
    let object: Value = serde_json::from_str(&pod("one", RUNS, &json!({}))).unwrap();
    ok(cluster
        .client()
        .create("/api/v1/namespaces/default/pods", &object)
        .await);
    ok(cluster.wait_pod_ready("one").await);
    let (_, mark) = ok(cluster.requests(0));
    let second = node_with(ok(cluster.node_options("node"))).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let (requests, _) = ok(cluster.requests(mark));
    let count = |resource: &str| requests.iter().filter(|it| it.resource == resource).count();
    for resource in ["pods/status", "nodes/status", "leases", "events", "nodes"] {
        println!("{resource}: {}", count(resource));
    }
    assert!(count("pods/status") < 40, "a war of statuses");
    assert!(count("nodes/status") < 40, "a war of statuses");
    // Both run the pod, as two kubelets would; one stays.
    ok(second.remove());
    let begun = Instant::now();
    ok(cluster.wait_pod_ready("one").await);
    ok(cluster.wait_node_ready("node").await);
    let told = ok(first.pods().await);
    let one = told.iter().find(|pod| pod.name == "one").unwrap();
    let id = one.container("main").unwrap().id;
    let tells_of_it =
        |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"] == id.as_str();
    ok(cluster
        .wait(&pod_path("one"), "to be of the first node", tells_of_it)
        .await);
    println!("the first node's word counts after {:?}", begun.elapsed());
    ok(first.remove());
    ok(cluster.remove());
}
