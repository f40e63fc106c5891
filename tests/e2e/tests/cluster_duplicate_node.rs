//! Two nodes of the same name. As with the kubelet nothing prevents it; neither floods the API
//! server, and the remaining one recovers.

use std::time::Instant;

use polylet_e2e::{RUNS, cluster, cluster_node, node_with, ok, pod};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Poll, until};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn duplicate_node_name_is_tolerated() {
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
    let requests = ok(until("two lease renewals by each node", || async {
        match cluster.requests(mark) {
            Ok((requests, _)) => {
                let leases = requests
                    .iter()
                    .filter(|request| request.resource == "leases");
                match leases.count() {
                    0..4 => Poll::Pending(format!("{} requests", requests.len())),
                    _ => Poll::Ready(requests),
                }
            }
            Err(error) => Poll::Pending(error.to_string()),
        }
    })
    .await);
    let count = |resource: &str| {
        requests
            .iter()
            .filter(|request| request.resource == resource)
            .count()
    };
    for resource in ["pods/status", "nodes/status", "leases", "events", "nodes"] {
        println!("{resource}: {}", count(resource));
    }
    assert!(
        count("pods/status") < 40,
        "the nodes overwrite each other's statuses without end"
    );
    assert!(
        count("nodes/status") < 40,
        "the nodes overwrite each other's statuses without end"
    );
    // Both run the pod, as two kubelets would. One remains.
    ok(second.remove());
    let removed = Instant::now();
    ok(cluster.wait_pod_ready("one").await);
    ok(cluster.wait_node_ready("node").await);
    let pods = ok(first.pods().await);
    let remaining = pods.iter().find(|pod| pod.name == "one").unwrap();
    let id = remaining.container("main").unwrap().id;
    let is_first =
        |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"] == id.as_str();
    ok(cluster
        .wait(
            &pod_path("one"),
            "to have the first node's container",
            is_first,
        )
        .await);
    println!(
        "the first node's status is in the API after {:?}",
        removed.elapsed()
    );
    ok(first.remove());
    ok(cluster.remove());
}
