//! Pods as large as the cluster's store takes them.

use std::time::Instant;

use polylet_e2e::{cluster, ok};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::{PODS, all_ready, bound, identities, node_to_come, show};

/// A hundred and ten pods near what the cluster's store takes, each with a ConfigMap of a megabyte: all
/// streams between services, and all that is kept, carry them. First only some of them can start.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn pods_as_large_as_they_can_be() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_to_come(&cluster, json!({})).await;
    let begun = Instant::now();
    for number in 0..110 {
        let name = format!("p{number:03}");
        large(&cluster, &name, number < 8).await;
    }
    println!("110 large pods made in {:?}", begun.elapsed());
    let begun = Instant::now();
    ok(node.up().await);
    for number in 0..8 {
        ok(cluster.wait_pod_ready(&format!("p{number:03}")).await);
    }
    println!("8 ready after {:?}", begun.elapsed());
    // The others wait for what they refer to; when that comes they start, too.
    let waits = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    };
    ok(cluster.wait(&pod_path("p109"), "to wait", waits).await);
    println!("p109 waits after {:?}", begun.elapsed());
    map(&cluster, "c109").await;
    ok(cluster.wait_pod_ready("p109").await);
    everybody_tells(&cluster, &node, 110).await;
    show(&node).await;
    let before = identities(&node).await;
    // All streams begin anew with everything.
    let begun = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    everybody_tells(&cluster, &node, 110).await;
    println!("all of it again after {:?}", begun.elapsed());
    assert_eq!(before, identities(&node).await);
    // And now all of them.
    let begun = Instant::now();
    for number in 8..109 {
        map(&cluster, &format!("c{number:03}")).await;
    }
    println!("101 ConfigMaps made in {:?}", begun.elapsed());
    all_ready(&node, 110).await;
    println!("110 ready after {:?}", begun.elapsed());
    show(&node).await;
    let (requests, _) = ok(cluster.requests(0));
    println!("{} requests", requests.len());
    ok(node.remove());
    ok(cluster.remove());
}

/// All pods are told by the command line and by the node API.
async fn everybody_tells(cluster: &Cluster, node: &Node, pods: usize) {
    let told = ok(until("all pods to be told", || async {
        // Refused while nothing is known yet in this life of the services.
        let told = ok(node.cli(&["pods", "-o", "json"]).await);
        let list: Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
        match list["pods"].as_array().map(Vec::len) {
            Some(all) if all == pods => Look::Done(all),
            some => Look::NotYet(format!(
                "{some:?}: {}",
                String::from_utf8_lossy(&told.stderr)
            )),
        }
    })
    .await);
    println!("{told} pods told");
    // Over the API server, whose authority the node API trusts.
    let path = "/api/v1/nodes/node/proxy/pods";
    let begun = Instant::now();
    let list = ok(cluster.kubectl(&["get", "--raw", path]).await);
    println!("/pods: {} bytes after {:?}", list.len(), begun.elapsed());
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), pods);
}

/// A pod of more than a megabyte, and its ConfigMap of one; in the annotations, the environment, and
/// in a field that this build has never heard of.
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

/// A ConfigMap as large as they can be.
async fn map(cluster: &Cluster, name: &str) {
    let data = json!({ "key": "v".repeat(1 << 20) });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
    let path = "/api/v1/namespaces/default/configmaps";
    ok(cluster.client().create(path, &map).await);
}
