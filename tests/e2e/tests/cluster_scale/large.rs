//! Pods of the maximum size that etcd accepts.

use std::time::Instant;

use polylet_e2e::{cluster, ok};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::{PODS, all_ready, bound, check_services, identities, node_not_started};

/// 110 pods close to etcd's limit, each with a ConfigMap of one megabyte, through all streams between
/// services and all state files. At first only some of them can start.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn pods_of_one_megabyte_run() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_not_started(&cluster, json!({})).await;
    let started = Instant::now();
    for number in 0..110 {
        let name = format!("p{number:03}");
        large(&cluster, &name, number < 8).await;
    }
    println!("110 large pods made in {:?}", started.elapsed());
    let started = Instant::now();
    ok(node.up().await);
    for number in 0..8 {
        ok(cluster.wait_pod_ready(&format!("p{number:03}")).await);
    }
    println!("8 ready after {:?}", started.elapsed());
    // The others start once their ConfigMaps exist.
    let waits = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    };
    ok(cluster.wait(&pod_path("p109"), "to wait", waits).await);
    println!("p109 waits after {:?}", started.elapsed());
    map(&cluster, "c109").await;
    ok(cluster.wait_pod_ready("p109").await);
    everybody_tells(&cluster, &node, 110).await;
    check_services(&node).await;
    let before = identities(&node).await;
    // All streams restart with a full snapshot.
    let started = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    everybody_tells(&cluster, &node, 110).await;
    println!("all pods restored after {:?}", started.elapsed());
    assert_eq!(before, identities(&node).await);
    // All pods.
    let started = Instant::now();
    for number in 8..109 {
        map(&cluster, &format!("c{number:03}")).await;
    }
    println!("101 ConfigMaps made in {:?}", started.elapsed());
    all_ready(&node, 110).await;
    println!("110 ready after {:?}", started.elapsed());
    check_services(&node).await;
    let (requests, _) = ok(cluster.requests(0));
    println!("{} requests", requests.len());
    ok(node.remove());
    ok(cluster.remove());
}

/// The command line and the node API list all pods.
async fn everybody_tells(cluster: &Cluster, node: &Node, pods: usize) {
    let output = ok(until("all pods to be reported", || async {
        // An error until the restarted services have synced.
        let output = ok(node.cli(&["pods", "-o", "json"]).await);
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match list["pods"].as_array().map(Vec::len) {
            Some(all) if all == pods => Poll::Ready(all),
            some => Poll::Pending(format!(
                "{some:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    })
    .await);
    println!("{output} pods reported");
    // Through the API server's proxy, whose certificate the node API trusts.
    let path = "/api/v1/nodes/node/proxy/pods";
    let started = Instant::now();
    let list = ok(cluster.kubectl(&["get", "--raw", path]).await);
    println!("/pods: {} bytes after {:?}", list.len(), started.elapsed());
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), pods);
}

/// A pod of more than one megabyte in annotations, environment and an unknown field.
async fn large(cluster: &Cluster, name: &str, with_map: bool) {
    let map_name = name.replace('p', "c");
    if with_map {
        map(cluster, &map_name).await;
    }
    let env: Vec<Value> = (0..10)
        .map(|at| json!({"name": format!("LARGE{at}"), "value": "e".repeat(90 << 10)}))
        .collect();
    let mut pod = bound(
        name,
        &json!({
            "volumes": [{ "name": "map", "configMap": { "name": map_name } }],
            "container": { "env": env, "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
        }),
    );
    pod["metadata"]["annotations"] = json!({ "large": "a".repeat(200 << 10) });
    ok(cluster.client().create(PODS, &pod).await);
}

/// A ConfigMap of the maximum size.
async fn map(cluster: &Cluster, name: &str) {
    let data = json!({ "key": "v".repeat(1 << 20) });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
    let path = "/api/v1/namespaces/default/configmaps";
    ok(cluster.client().create(path, &map).await);
}
