//! A long time without an API server, under load: pods end and start again, probes go on, services
//! and then the whole machine are restarted, and when the server is back nobody has lost anything.
//! The outage lasts `POLYLET_TEST_OUTAGE` seconds, ten minutes when nothing is said.

use std::fs;
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Pods of each kind.
const OF_EACH: usize = 4;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn ten_minutes_without_an_api_server() {
    if !polylet_e2e::long() {
        return;
    }
    let seconds = std::env::var("POLYLET_TEST_OUTAGE").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(600);
    let mut cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": "value" },
    });
    let maps = "/api/v1/namespaces/default/configmaps";
    ok(cluster.client().create(maps, &map).await);
    let names = make(&cluster).await;
    for name in &names {
        let there = |pod: &Value| pod["status"]["phase"] == "Running";
        ok(cluster.wait(&pod_path(name), "to run", there).await);
    }
    let made = uids(&cluster, &names).await;
    on_disk(&node, &made).await;

    cluster.stop_api();
    let begun = Instant::now();
    let steady = identities(&node, "steady").await;
    let mut kills = 0;
    // Every service again and again, and all else goes on.
    while begun.elapsed() < Duration::from_secs(seconds) {
        for service in SERVICES {
            ok(node.kill(service).await);
            kills += 1;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        ok(node.wait_in_step().await);
        // The supervisor kills nobody itself: it too is killed.
        ok(node.kill("supervisor").await);
        ok(node.up().await);
        ok(node.wait_in_step().await);
        settled(&node, &steady).await;
        map_files_stay(&node, &made).await;
        let told = restarts(&node, "restarts").await;
        println!("{:?}: {kills} kills, restarts {told:?}", begun.elapsed());
    }
    let restarted = restarts(&node, "restarts").await;
    assert!(restarted.iter().all(|count| *count >= 2), "{restarted:?}");
    let status = ok(node.cli(&["pods"]).await);
    println!("{}", String::from_utf8_lossy(&status.stdout));
    let probed = identities(&node, "probed").await;
    println!("probed: {probed:?}");

    // A loss of power: the same pods come up from disk.
    let lost = Instant::now();
    ok(node.lose_power().await);
    ok(node.up().await);
    let up = |pod: &PodView| pod.is_ready();
    for name in names.iter().filter(|name| !name.starts_with("restarts")) {
        wait_view(&node, name, "to run again", up).await;
    }
    println!("all Ready {:?} after the power was back", lost.elapsed());
    map_files_stay(&node, &made).await;
    let status = ok(node.cli(&["pods"]).await);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    println!("{told}");
    assert!(
        told.contains("(as last heard: API server is away)"),
        "{told}"
    );
    let status = ok(node.cli(&["status"]).await);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(told.contains("API server is away since 2"), "{told}");
    let steady = identities(&node, "steady").await;

    let back = Instant::now();
    ok(cluster.start_api().await);
    for name in names.iter().filter(|name| name.starts_with("steady")) {
        let id = steady.iter().find(|(of, _)| of == name).unwrap().1.clone();
        let same = |pod: &Value| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["containerID"] == id.as_str()
        };
        ok(cluster
            .wait(&pod_path(name), "to be told as it is", same)
            .await);
    }
    ok(cluster.wait_node_ready("node").await);
    println!("agreed {:?} after the server's start began", back.elapsed());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(
        uids(&cluster, &names).await,
        made,
        "nothing was deleted in error"
    );
    assert_eq!(
        identities(&node, "steady").await,
        steady,
        "nothing was restarted"
    );
    let told = ok(node.cli(&["pods"]).await);
    assert!(!String::from_utf8_lossy(&told.stdout).contains("is away"));
    // The server restarts again, with nothing in its watch cache.
    cluster.stop_api();
    ok(cluster.start_api().await);
    let later: Value = serde_json::from_str(&pod("later", RUNS, &json!({}))).unwrap();
    ok(cluster.client().create(PODS, &later).await);
    ok(cluster.wait_pod_ready("later").await);
    assert_eq!(
        identities(&node, "steady").await,
        steady,
        "nothing was restarted"
    );
    ok(node.remove());
    ok(cluster.remove());
}

/// Pods that run on, that end every few seconds, and that are probed.
async fn make(cluster: &Cluster) -> Vec<String> {
    let ends = "sleep 20; exit 1";
    let mounts = json!({
        "volumes": [{ "name": "map", "configMap": { "name": "settings" } }],
        "container": { "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
    });
    let probe = json!({"exec": {"command": ["cat", "/map/key"]}, "periodSeconds": 2, "timeoutSeconds": 20, "failureThreshold": 5});
    let mut probed = mounts.clone();
    probed["container"]["livenessProbe"] = probe.clone();
    probed["container"]["readinessProbe"] = probe;
    let mut names = Vec::new();
    for (kind, script, more) in [
        ("steady", RUNS, &mounts),
        ("restarts", ends, &mounts),
        ("probed", RUNS, &probed),
    ] {
        for number in 0..OF_EACH {
            let name = format!("{kind}-{number}");
            let object: Value = serde_json::from_str(&pod(&name, script, more)).unwrap();
            ok(cluster.client().create(PODS, &object).await);
            names.push(name);
        }
    }
    names
}

/// What the node needs to work alone is on its disk a moment after it was told.
async fn on_disk(node: &Node, pods: &[String]) {
    let dir = node.dirs().state.join("pod-config");
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let look = || async {
        let (kept, tokens, objects) = (text("api.json"), text("tokens.json"), text("objects.json"));
        let missing = pods
            .iter()
            .find(|uid| !kept.contains(*uid) || !tokens.contains(*uid));
        match (missing, objects.contains("settings")) {
            (None, true) => Look::Done(()),
            found => Look::NotYet(format!("{found:?}")),
        }
    };
    ok(until("what the API server said to be on disk", look).await);
}

async fn map_files_stay(node: &Node, uids: &[String]) {
    for uid in uids {
        let at = node.dirs().root.join("pods").join(uid);
        let file = at.join("volumes/kubernetes.io~configmap/map/key");
        assert_eq!(ok(fs::read_to_string(file)), "value");
    }
}

async fn settled(node: &Node, steady: &[(String, String)]) {
    for (name, id) in steady {
        let same = |pod: &PodView| {
            pod.is_ready() && pod.container("main").is_some_and(|main| main.id == *id)
        };
        wait_view(node, name, "to run on", same).await;
    }
}

/// Name and container of the pods of a kind.
async fn identities(node: &Node, kind: &str) -> Vec<(String, String)> {
    let pods = ok(node.pods().await);
    let of = pods.iter().filter(|pod| pod.name.starts_with(kind));
    let mut all: Vec<_> = of
        .map(|pod| {
            (
                pod.name.clone(),
                pod.container("main").map_or(String::new(), |main| main.id),
            )
        })
        .collect();
    all.sort();
    assert_eq!(all.len(), OF_EACH);
    all
}

async fn restarts(node: &Node, kind: &str) -> Vec<u64> {
    let pods = ok(node.pods().await);
    let of = pods.iter().filter(|pod| pod.name.starts_with(kind));
    of.filter_map(|pod| pod.container("main").map(|main| main.restarts))
        .collect()
}

/// A pod as the node itself tells it, by its name in the API.
async fn wait_view(node: &Node, name: &str, what: &str, wanted: impl Fn(&PodView) -> bool) {
    let look = || async {
        match node.pods().await {
            Ok(pods) => match pods.into_iter().find(|pod| pod.name == name) {
                Some(pod) if wanted(&pod) => Look::Done(()),
                Some(pod) => Look::NotYet(pod.line()),
                None => Look::NotYet(format!("no pod {name}")),
            },
            Err(error) => Look::NotYet(polylet_harness::error::report(&error)),
        }
    };
    ok(until(format!("pod {name} {what}"), look).await);
}

async fn uids(cluster: &Cluster, names: &[String]) -> Vec<String> {
    let mut uids = Vec::new();
    for name in names {
        let pod = ok(cluster.client().get(&pod_path(name)).await).unwrap();
        uids.push(pod["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    uids
}
