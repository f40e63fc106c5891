//! Changes of a control plane while a node runs: compaction expires its watches, and servers return
//! with another authority's certificate. Takes a minute.

use std::fs;
use std::time::Instant;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, node_with, ok, pod, wait_for_log};
use polylet_harness::cluster::{Patch, pod_path, set_in_kubeconfig};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn expired_watches_are_relisted() {
    let mut steps = Steps::new();
    if !polylet_e2e::long() {
        return;
    }
    let mut cluster = cluster().await;
    let mut proxy = ok(cluster.proxy().await);
    let options = ok(cluster.node_options("node"));
    let kubeconfig = cluster.scratch().join("node-node.kubeconfig");
    ok(set_in_kubeconfig(
        &kubeconfig,
        "proxy-url",
        json!(proxy.url()),
    ));
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "settings" }, "data": { "key": "before" },
    });
    ok(cluster.client().create(MAPS, &map).await);
    let mounts = json!({
        "volumes": [{ "name": "map", "configMap": { "name": "settings" } }],
        "container": { "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
    });
    for (name, more) in [
        ("steady", &mounts),
        ("goes", &json!({})),
        ("vanishes", &json!({})),
    ] {
        make(&cluster, name, more).await;
        ok(cluster.wait_pod_ready(name).await);
    }
    let steady = ok(cluster.wait_pod_ready("steady").await);
    let file = map_file(&node, &steady);
    assert_eq!(ok(fs::read_to_string(&file)), "before");

    // Disconnected while objects change and etcd is compacted.
    proxy.down();
    ok(cluster
        .client()
        .delete(&pod_path("goes"), &Value::Null)
        .await);
    let at_once = json!({ "gracePeriodSeconds": 0 });
    ok(cluster
        .client()
        .delete(&pod_path("vanishes"), &at_once)
        .await);
    let change = json!({ "data": { "key": "after" } });
    let map = format!("{MAPS}/settings");
    ok(cluster.client().patch(&map, Patch::Merge, &change).await);
    steps.run("make", make(&cluster, "comes", &json!({}))).await;
    ok(cluster.forget_history().await);
    let (_, mark) = ok(cluster.requests(0));
    ok(proxy.up().await);
    let back = Instant::now();

    ok(cluster.wait_pod_ready("comes").await);
    ok(cluster.wait_absent(&pod_path("goes")).await);
    ok(until("the file to contain the new objects", || async {
        match fs::read_to_string(&file) {
            Ok(text) if text == "after" => Poll::Ready(()),
            found => Poll::Pending(format!("{found:?}")),
        }
    })
    .await);
    ok(until("deleted pods to be removed", || async {
        let pods = ok(node.pods().await);
        let names: Vec<String> = pods.into_iter().map(|pod| pod.name).collect();
        match names
            .iter()
            .any(|name| name == "vanishes" || name == "goes")
        {
            false => Poll::Ready(()),
            true => Poll::Pending(format!("{names:?}")),
        }
    })
    .await);
    println!("in sync {:?} after it was reachable", back.elapsed());
    let (requests, _) = ok(cluster.requests(mark));
    let is_full_list = |request: &&polylet_harness::cluster::AuditEvent| {
        request.verb == "list" && request.resource == "pods"
    };
    assert!(
        requests.iter().any(|request| is_full_list(&request)),
        "{requests:?}"
    );
    let now = ok(cluster.wait_pod_ready("steady").await);
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(container(&now), container(&steady), "nothing was restarted");
    steps
        .run("no service was restarted", no_service_was_restarted(&node))
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn replaced_ca_file_is_reloaded() {
    let mut steps = Steps::new();
    if !polylet_e2e::long() {
        return;
    }
    let mut cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["nodeLeaseDurationSeconds"] = json!(4);
    let trusted = cluster.scratch().join("trusted.crt");
    fs::copy(cluster.authority(), &trusted).unwrap();
    let kubeconfig = cluster.scratch().join("node-node.kubeconfig");
    ok(set_in_kubeconfig(
        &kubeconfig,
        "certificate-authority",
        json!(trusted),
    ));
    let node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    steps
        .run("make", make(&cluster, "steady", &json!({})))
        .await;
    let steady = ok(cluster.wait_pod_ready("steady").await);

    let next = ok(cluster.change_authority().await);
    let before = ok(cluster.wait(LEASE, "to exist", |_| true).await);
    // Bound by the test, since the scheduler is disconnected, too.
    steps
        .run(
            "make",
            make(&cluster, "later", &json!({ "nodeName": "node" })),
        )
        .await;
    wait_for_log(&node, "invalid peer certificate").await;
    // An incomplete file in between must not stop the retries.
    fs::write(&trusted, "-----BEGIN CERTIFICATE-----\n").unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    fs::copy(&next, &trusted).unwrap();
    let replaced = Instant::now();
    let newer = |lease: &Value| lease["spec"]["renewTime"] != before["spec"]["renewTime"];
    ok(cluster.wait(LEASE, "to be renewed", newer).await);
    println!("trusted again {:?} after the file", replaced.elapsed());
    ok(cluster.wait_pod_ready("later").await);
    println!("a pod ran {:?} after the file", replaced.elapsed());
    let now = ok(cluster.wait_pod_ready("steady").await);
    assert_eq!(
        now["status"]["containerStatuses"],
        steady["status"]["containerStatuses"]
    );
    steps
        .run("no service was restarted", no_service_was_restarted(&node))
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

async fn make(cluster: &Cluster, name: &str, more: &Value) {
    let object: Value = serde_json::from_str(&pod(name, RUNS, more)).unwrap();
    ok(cluster.client().create(PODS, &object).await);
}

fn map_file(node: &Node, pod: &Value) -> std::path::PathBuf {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let pods = node.dirs().root.join("pods").join(uid);
    pods.join("volumes/kubernetes.io~configmap/map/key")
}

async fn no_service_was_restarted(node: &Node) {
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{} was restarted", service.name);
    }
}
