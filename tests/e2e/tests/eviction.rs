//! A node that is short of memory: the pod goes by order, and its status says why.

use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::NodeOptions;
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_pod_is_evicted_and_stays_so() {
    // No machine has so much: the threshold is met from the first sample on.
    let mut node = node_with(NodeOptions {
        kubelet: json!({ "evictionHard": { "memory.available": "1000Ti" } }),
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    })
    .await;
    ok(node.put("hog.json", &pod("hog", RUNS, &json!({}))));
    let evicted = ok(node
        .wait_pod("hog", "to be evicted", |pod| {
            pod.phase() == "Failed" && pod.reason() == "Evicted"
        })
        .await);
    let message = evicted.message();
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: 1000Ti"),
        "{message}"
    );
    let target = evicted.condition("DisruptionTarget");
    let reason = target.and_then(|condition| condition["reason"].as_str());
    assert_eq!(reason, Some("TerminationByKubelet"), "{target:?}");
    ok(node
        .wait_pod("hog", "to have nothing that runs", |pod| {
            pod.containers().iter().all(|one| one.state != "running")
        })
        .await);

    // The decision outlives everybody who took part in it.
    for service in ["eviction", "sync-coordinator", "status-reporter"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let after = ok(node
        .wait_pod("hog", "to be told of", |pod| !pod.phase().is_empty())
        .await);
    assert_eq!(after.reason(), "Evicted");
    assert_eq!(after.identity(), evicted.identity());
    ok(node.take("hog.json"));
    ok(node.wait_gone("hog").await);
    ok(node.remove());
}
