//! A node without its API server: pods keep running across restarts of every service and a power
//! loss, and nothing is lost when the server is available again.

use std::fs;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

const PODS: [&str; 2] = ["plain", "volumes"];

/// The name of the static pod in the API.
const STATIC: &str = "static-node";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn pods_keep_running_without_an_api_server() {
    let mut steps = Steps::new();
    let mut cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": "value" },
    });
    let maps = "/api/v1/namespaces/default/configmaps";
    ok(cluster.client().create(maps, &map).await);
    for (name, more) in PODS.iter().zip([json!({}), volumes()]) {
        create(&cluster, name, &more).await;
    }
    for name in PODS {
        ok(cluster.wait_pod_ready(name).await);
    }
    let made = uids(&cluster).await;
    ok(node.put("static.json", &pod("static", RUNS, &json!({}))));
    let before = wait_view(&node, STATIC, "to be Ready", PodView::is_ready).await;

    steps
        .run("wait until persisted", wait_until_persisted(&node, &made))
        .await;
    cluster.stop_api();
    steps
        .run(
            "restarts disturb nothing",
            restarts_disturb_nothing(&mut node),
        )
        .await;
    let killed = container_is_restarted(&node).await;
    steps
        .run(
            "pods are restored after power loss",
            pods_are_restored_after_power_loss(&mut node, &killed, &before),
        )
        .await;

    ok(cluster.start_api().await);
    let counted = |pod: &Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
        is_ready(pod) && restarts >= Some(1)
    };
    for name in PODS {
        ok(cluster
            .wait(&pod_path(name), "to be Ready again", counted)
            .await);
    }
    assert_eq!(uids(&cluster).await, made, "nothing was deleted in error");
    ok(cluster.wait_node_ready("node").await);

    // It works as before: a pod starts, and all are deleted.
    steps
        .run("create", create(&cluster, "later", &json!({})))
        .await;
    ok(cluster.wait_pod_ready("later").await);
    for name in [PODS[0], PODS[1], "later"] {
        ok(cluster.client().delete(&pod_path(name), &Value::Null).await);
    }
    for name in [PODS[0], PODS[1], "later"] {
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    ok(node.take("static.json"));
    ok(node.wait_gone("static").await);
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Waits until the state that the node needs without the API server is on disk.
async fn wait_until_persisted(node: &Node, pods: &[String]) {
    let dir = node.dirs().state.join("pod-config");
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let poll = || async {
        let (pods_unchanged, tokens) = (text("api.json"), text("tokens.json"));
        let missing = pods
            .iter()
            .find(|uid| !pods_unchanged.contains(*uid) || !tokens.contains(*uid));
        let objects = text("objects.json").contains("settings");
        let services = text("services.json").contains("kubernetes");
        match (missing, objects, services) {
            (None, true, true) => Poll::Ready(()),
            found => Poll::Pending(format!("{found:?}")),
        }
    };
    ok(until("the API objects to be on disk", poll).await);
}

/// Restarts all services and the supervisor without affecting a container.
async fn restarts_disturb_nothing(node: &mut Node) {
    let before = views(node).await;
    for service in SERVICES {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    for view in &before {
        let same = |pod: &PodView| pod.is_ready() && pod.identity() == view.identity();
        wait_view(node, &view.name, "to be unchanged", same).await;
    }
}

async fn container_is_restarted(node: &Node) -> PodView {
    let view = wait_view(node, "plain", "to be Ready", PodView::is_ready).await;
    let id = view.container("main").unwrap().id;
    ok(node.containerd.kill(id.trim_start_matches("containerd://")));
    let restarted = |pod: &PodView| {
        pod.is_ready() && pod.container("main").is_some_and(|main| main.restarts == 1)
    };
    wait_view(node, "plain", "to be restarted", restarted).await
}

/// Pods and their volumes are restored from disk. A static pod whose manifest has changed meanwhile starts, too: the
/// API server may be one.
async fn pods_are_restored_after_power_loss(
    node: &mut Node,
    killed: &PodView,
    static_pod: &PodView,
) {
    ok(node.lose_power().await);
    let changed = pod("static", &format!("true; {RUNS}"), &json!({}));
    ok(node.put("static.json", &changed));
    ok(node.up().await);
    let next = |pod: &PodView| pod.is_ready() && pod.uid != static_pod.uid;
    wait_view(node, STATIC, "to run as changed", next).await;
    let restarted = |pod: &PodView| pod.is_ready() && pod.identity() != killed.identity();
    wait_view(node, "plain", "to run again", restarted).await;
    let volumes = wait_view(node, "volumes", "to run again", PodView::is_ready).await;
    let at = node.dirs().root.join("pods").join(&volumes.uid);
    let file = at.join("volumes/kubernetes.io~configmap/map/key");
    assert_eq!(ok(fs::read_to_string(file)), "value");
    let token = at.join("volumes/kubernetes.io~projected");
    let volume = ok(fs::read_dir(token)).next().expect("the pod has a token");
    let token = ok(fs::read_to_string(ok(volume).path().join("token")));
    assert_eq!(token.split('.').count(), 3, "a token");
}

async fn views(node: &Node) -> Vec<PodView> {
    let mut views = Vec::new();
    for name in PODS {
        views.push(wait_view(node, name, "to be Ready", PodView::is_ready).await);
    }
    views
}

/// The node's own view of a pod, by its name in the API.
async fn wait_view(
    node: &Node,
    name: &str,
    what: &str,
    condition: impl Fn(&PodView) -> bool,
) -> PodView {
    let poll = || async {
        match node.pods().await {
            Ok(pods) => match pods.into_iter().find(|pod| pod.name == name) {
                Some(pod) if condition(&pod) => Poll::Ready(pod),
                Some(pod) => Poll::Pending(pod.line()),
                None => Poll::Pending(format!("no pod {name}")),
            },
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    };
    ok(until(format!("pod {name} {what}"), poll).await)
}

fn volumes() -> Value {
    json!({
        "volumes": [{ "name": "map", "configMap": { "name": "settings" } }],
        "container": { "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
    })
}

async fn create(cluster: &Cluster, name: &str, more: &Value) {
    let object: Value = serde_json::from_str(&pod(name, RUNS, more)).unwrap();
    let path = "/api/v1/namespaces/default/pods";
    ok(cluster.client().create(path, &object).await);
}

async fn uids(cluster: &Cluster) -> Vec<String> {
    let mut uids = Vec::new();
    for name in PODS {
        let pod = ok(cluster.client().get(&pod_path(name)).await).unwrap();
        uids.push(pod["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    uids
}
