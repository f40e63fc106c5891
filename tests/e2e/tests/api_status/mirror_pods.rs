//! Mirror pods of static pods, and their events.

use super::*;

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn mirror_pods_and_events() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    steps
        .run(
            "mirror pods are recreated",
            mirror_pods_are_recreated(&cluster, &node),
        )
        .await;
    steps.run("events", events(&cluster)).await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

async fn mirror_pods_are_recreated(cluster: &Cluster, node: &Node) {
    ok(node.put("still.json", &pod("still", RUNS, &json!({}))));
    let mirror = ok(cluster.wait_pod_ready("still-node").await);
    let annotations = &mirror["metadata"]["annotations"];
    let hash = annotations["kubernetes.io/config.hash"].clone();
    assert_eq!(annotations["kubernetes.io/config.mirror"], hash);
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(annotations["kubernetes.io/config.seen"].is_string());
    let owner = &mirror["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("Node"), &json!(true))
    );
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let runs = container(&mirror);

    // Deleted manually: it is recreated, and the static pod is not affected.
    ok(cluster
        .kubectl(&["delete", "pod", "still-node", "--wait=false"])
        .await);
    let other = |pod: &Value| pod["metadata"]["uid"] != mirror["metadata"]["uid"];
    let path = pod_path("still-node");
    ok(cluster.wait(&path, "to come back", other).await);
    let recreated = ok(cluster.wait_pod_ready("still-node").await);
    assert_eq!(container(&recreated), runs);

    // Edited manifest: the mirror pod is replaced.
    ok(node.put("still.json", &pod("still", RUNS, &json!({ "priority": 0 }))));
    let edited = |pod: &Value| {
        let now = &pod["metadata"]["annotations"]["kubernetes.io/config.mirror"];
        *now != hash && condition(pod, "Ready") == Some("True")
    };
    ok(cluster
        .wait(&path, "to be that of the new pod", edited)
        .await);

    ok(node.take("still.json"));
    wait_deleted(cluster, "still-node").await;
    ok(node.wait_gone("still").await);
}

async fn events(cluster: &Cluster) {
    let probe = json!({
        "container": { "readinessProbe": { "exec": { "command": ["sh", "-c", "echo no; exit 1"] }, "periodSeconds": 1 } },
    });
    create(cluster, &bound("sick", RUNS, probe)).await;
    let url = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=sick";
    let reason = |list: &Value, reason: &str| {
        let items = list["items"].as_array();
        let mut found = items
            .into_iter()
            .flatten()
            .filter(|e| e["reason"] == reason);
        found.next().cloned()
    };
    let counted =
        |list: &Value| reason(list, "Unhealthy").is_some_and(|e| e["count"].as_u64() >= Some(2));
    let list = ok(cluster.wait(url, "to count", counted).await);
    let unhealthy = reason(&list, "Unhealthy").unwrap();
    assert_eq!(unhealthy["type"], "Warning");
    assert_eq!(
        unhealthy["source"],
        json!({ "component": "kubelet", "host": "node" })
    );
    assert_eq!(
        unhealthy["involvedObject"]["fieldPath"],
        "spec.containers{main}"
    );
    let message = unhealthy["message"].as_str().unwrap();
    assert!(
        message.starts_with("Readiness probe failed: no"),
        "{message}"
    );
    let described = ok(cluster.kubectl(&["describe", "pod", "sick"]).await);
    assert!(described.contains("Unhealthy"), "{described}");
    for status_patches in ["Created", "Started"] {
        assert!(
            described.contains(status_patches),
            "{status_patches}: {described}"
        );
    }
    delete(cluster, "sick", Value::Null).await;
    wait_deleted(cluster, "sick").await;
}
