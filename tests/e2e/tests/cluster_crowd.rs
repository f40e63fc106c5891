//! Very many pods at once, very large ones, and ones that say more than this build knows: the node
//! takes what it can, says of the rest what upstream says, and stays quick.

use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node that does not run yet, and its object, which pods can be bound to.
async fn node_to_come(cluster: &Cluster, kubelet: Value) -> Node {
    polylet_harness::guard::on_signals();
    let mut options = ok(cluster.node_options("node"));
    for (field, value) in kubelet.as_object().into_iter().flatten() {
        options.kubelet[field] = value.clone();
    }
    ok(Node::prepare(options, &|line| eprintln!("{line}")).await)
}

/// A pod as it is bound, with nothing but its own container.
fn bound(name: &str, more: &Value) -> Value {
    let mut pod: Value = serde_json::from_str(&pod(name, RUNS, more)).unwrap();
    pod["spec"]["nodeName"] = "node".into();
    pod["spec"]["automountServiceAccountToken"] = false.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
    pod
}

/// Phase and reason of every pod, without the rest of them.
async fn phases(cluster: &Cluster) -> Vec<(String, String, String)> {
    let words = "jsonpath={range .items[*]}{.metadata.name} {.status.phase}/{.status.reason}/{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let told = ok(cluster.kubectl(&["get", "pods", "-o", words]).await);
    let lines = told.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let mut parts = rest.splitn(2, '/');
        let phase = parts.next()?.to_owned();
        Some((name.to_owned(), phase, parts.next()?.to_owned()))
    });
    lines.collect()
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn five_hundred_pods_at_once() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_to_come(&cluster, json!({})).await;
    let begun = Instant::now();
    for number in 0..500 {
        // One after the other: who came first has a place.
        let pod = bound(&format!("p{number:03}"), &json!({}));
        ok(cluster.client().create(PODS, &pod).await);
        if number == 100 {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    println!("500 made in {:?}", begun.elapsed());
    let begun = Instant::now();
    ok(node.up().await);
    ok(until("every pod to be judged", || async {
        let all = phases(&cluster).await;
        let count = |phase: &str, rest: &str| {
            let is = |(_, p, r): &&(String, String, String)| p == phase && r == rest;
            all.iter().filter(is).count()
        };
        let (runs, refused) = (
            count("Running", "/True"),
            count("Failed", "OutOfpods/False"),
        );
        let refused = refused + count("Failed", "OutOfpods/");
        match (runs, refused) {
            (110, 390) => Look::Done(()),
            _ => Look::NotYet(format!(
                "{:?}: {runs} run, {refused} refused",
                begun.elapsed()
            )),
        }
    })
    .await);
    println!("500 judged, 110 ready after {:?}", begun.elapsed());
    // Those that were made first have the places.
    let all = phases(&cluster).await;
    let late: Vec<_> = all
        .iter()
        .filter(|(name, phase, _)| phase == "Running" && name.as_str() > "p110")
        .collect();
    println!("{} of the later ones run", late.len());
    let refused = ok(cluster.client().get(&pod_path("p499")).await).unwrap();
    println!("{}", refused["status"]);
    let first = all
        .iter()
        .filter(|(name, phase, _)| phase == "Running" && name.as_str() <= "p100")
        .count();
    assert_eq!(first, 101, "who came first has a place");
    assert_eq!(
        refused["status"]["message"],
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"
    );
    ok(node.remove());
    ok(cluster.remove());
}

/// A hundred and ten pods near what the cluster's store takes, each with a ConfigMap of a megabyte: all
/// streams between services, and all that is kept, carry them. Only some of them start.
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
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c109"}, "data": {"key": "v".repeat(1 << 20)}});
    ok(cluster
        .client()
        .create("/api/v1/namespaces/default/configmaps", &map)
        .await);
    ok(cluster.wait_pod_ready("p109").await);
    everybody_tells(&cluster, &node, 110).await;
    let table = ok(node.cli(&["status"]).await);
    println!("{}", String::from_utf8_lossy(&table.stdout));
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{}", service.name);
    }
    let before: Vec<_> = ok(node.pods().await)
        .iter()
        .map(polylet_harness::PodView::identity)
        .collect();
    // All streams begin anew with everything.
    let begun = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    everybody_tells(&cluster, &node, 110).await;
    println!("all of it again after {:?}", begun.elapsed());
    let after: Vec<_> = ok(node.pods().await)
        .iter()
        .map(polylet_harness::PodView::identity)
        .collect();
    assert_eq!(before, after);
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
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map_name}, "data": {"key": "v".repeat(1 << 20)}});
        ok(cluster
            .client()
            .create("/api/v1/namespaces/default/configmaps", &map)
            .await);
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
