//! A long API server outage under load: containers restart, probes continue, services and then the
//! whole machine are restarted, and nothing is lost when the server is available again. The outage
//! lasts `POLYLET_TEST_OUTAGE` seconds, ten minutes by default.

use std::fs;
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Number of pods of each kind.
const PODS_PER_KIND: usize = 4;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn ten_minutes_without_an_api_server() {
    let mut steps = Steps::new();
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
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "credentials" },
        "stringData": { "PASSWORD": "s3cret" },
    });
    let fixed = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "fixed" },
        "immutable": true, "stringData": { "FIXED": "f1xed" },
    });
    let secrets = "/api/v1/namespaces/default/secrets";
    for secret in [&secret, &fixed] {
        ok(cluster.client().create(secrets, secret).await);
    }
    let names = make(&cluster).await;
    for name in &names {
        let existing = |pod: &Value| pod["status"]["phase"] == "Running";
        ok(cluster.wait(&pod_path(name), "to run", existing).await);
    }
    let made = uids(&cluster, &names).await;
    steps
        .run("wait until persisted", wait_until_persisted(&node, &made))
        .await;

    cluster.stop_api();
    let started = Instant::now();
    let steady = identities(&node, "steady").await;
    let mut kills = 0;
    // Each service in turn, repeatedly.
    while started.elapsed() < Duration::from_secs(seconds) {
        for service in SERVICES {
            ok(node.kill(service).await);
            kills += 1;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        ok(node.wait_in_step().await);
        // The supervisor is killed, too.
        ok(node.kill("supervisor").await);
        ok(node.up().await);
        ok(node.wait_in_step().await);
        wait_settled(&node, &steady).await;
        config_map_files_are_unchanged(&node, &made).await;
        let output = restarts(&node, "restarts").await;
        println!(
            "{:?}: {kills} kills, restarts {output:?}",
            started.elapsed()
        );
    }
    let restarted = restarts(&node, "restarts").await;
    // The back-off doubles: after five minutes the fifth restart is near.
    let least = if seconds >= 300 { 4 } else { 2 };
    assert!(
        restarted.iter().all(|count| *count >= least),
        "{restarted:?}"
    );
    let status = ok(node.cli(&["pods"]).await);
    println!("{}", String::from_utf8_lossy(&status.stdout));
    let probed = identities(&node, "probed").await;
    println!("probed: {probed:?}");

    // Power loss: the same pods are restored from disk.
    let lost = Instant::now();
    ok(node.lose_power().await);
    ok(node.up().await);
    let up = |pod: &PodView| pod.is_ready();
    for name in names.iter().filter(|name| !name.starts_with("restarts")) {
        wait_view(&node, name, "to run again", up).await;
    }
    println!("all Ready {:?} after the power was back", lost.elapsed());
    steps
        .run(
            "config map files are unchanged",
            config_map_files_are_unchanged(&node, &made),
        )
        .await;
    let status = ok(node.cli(&["pods"]).await);
    let output = String::from_utf8_lossy(&status.stdout).into_owned();
    println!("{output}");
    assert!(
        output.contains("(stale: API server unavailable)"),
        "{output}"
    );
    let status = ok(node.cli(&["status"]).await);
    let output = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(output.contains("unavailable since 2"), "{output}");
    let steady = identities(&node, "steady").await;

    let back = Instant::now();
    ok(cluster.start_api().await);
    for name in names.iter().filter(|name| name.starts_with("steady")) {
        let id = steady.iter().find(|(of, _)| of == name).unwrap().1.clone();
        let same = |pod: &Value| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["containerID"] == id.as_str()
        };
        ok(cluster
            .wait(&pod_path(name), "to be Ready with the same container", same)
            .await);
    }
    ok(cluster.wait_node_ready("node").await);
    println!("agreed {:?} after the server's start began", back.elapsed());
    // A pod that starts and is removed shows that the node has processed everything before it. It does not wait for
    // the scheduler, which may look for the server once a minute by now.
    let bound = json!({ "nodeName": "node" });
    let marker: Value = serde_json::from_str(&pod("marker", RUNS, &bound)).unwrap();
    ok(cluster.client().create(PODS, &marker).await);
    ok(cluster.wait_pod_ready("marker").await);
    let marker = pod_path("marker");
    ok(cluster.client().delete(&marker, &Value::Null).await);
    ok(cluster.wait_absent(&marker).await);
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
    let output = ok(node.cli(&["pods"]).await);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("unavailable"));
    // The server restarts again with an empty watch cache.
    cluster.stop_api();
    ok(cluster.start_api().await);
    let later: Value = serde_json::from_str(&pod("later", RUNS, &bound)).unwrap();
    ok(cluster.client().create(PODS, &later).await);
    ok(cluster.wait_pod_ready("later").await);
    assert_eq!(
        identities(&node, "steady").await,
        steady,
        "nothing was restarted"
    );
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Pods that keep running, that exit every few seconds, and that are probed.
async fn make(cluster: &Cluster) -> Vec<String> {
    let ends = "test $PASSWORD = s3cret && sleep 20; exit 1";
    let mounts = json!({
        "volumes": [{ "name": "map", "configMap": { "name": "settings" } }],
        "container": { "volumeMounts": [{ "name": "map", "mountPath": "/map" }] },
    });
    let probe = json!({"exec": {"command": ["cat", "/map/key"]}, "periodSeconds": 2, "timeoutSeconds": 20, "failureThreshold": 5});
    let mut probed = mounts.clone();
    probed["container"]["livenessProbe"] = probe.clone();
    probed["container"]["readinessProbe"] = probe;
    // Read whenever a container starts, and not otherwise: minutes apart while it backs off.
    let mut reads = mounts.clone();
    reads["container"]["envFrom"] = json!([{ "secretRef": { "name": "credentials" } }]);
    let mut fixed = reads.clone();
    fixed["container"]["envFrom"] = json!([{ "secretRef": { "name": "fixed" } }]);
    let volume = json!({ "name": "fixed", "secret": { "secretName": "fixed" } });
    fixed["volumes"].as_array_mut().unwrap().push(volume);
    let mount = json!({ "name": "fixed", "mountPath": "/fixed" });
    let mounts_of_fixed = fixed["container"]["volumeMounts"].as_array_mut();
    mounts_of_fixed.unwrap().push(mount);
    let shows = format!("test $FIXED = f1xed || exit 1; {RUNS}");
    let mut names = Vec::new();
    for (kind, script, more) in [
        ("steady", RUNS, &mounts),
        ("fixed", &shows, &fixed),
        ("restarts", ends, &reads),
        ("probed", RUNS, &probed),
    ] {
        for number in 0..PODS_PER_KIND {
            let name = format!("{kind}-{number}");
            let object: Value = serde_json::from_str(&pod(&name, script, more)).unwrap();
            ok(cluster.client().create(PODS, &object).await);
            names.push(name);
        }
    }
    names
}

/// Waits until the state that the node needs without the API server is on disk.
async fn wait_until_persisted(node: &Node, pods: &[String]) {
    let dir = node.dirs().state.join("pod-config");
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let poll = || async {
        let (api_state, tokens, objects) =
            (text("api.json"), text("tokens.json"), text("objects.json"));
        let missing = pods
            .iter()
            .find(|uid| !api_state.contains(*uid) || !tokens.contains(*uid));
        let named = ["settings", "credentials", "fixed"];
        match (missing, named.iter().all(|name| objects.contains(name))) {
            (None, true) => Poll::Ready(()),
            found => Poll::Pending(format!("{found:?}")),
        }
    };
    ok(until("the API objects to be on disk", poll).await);
}

async fn config_map_files_are_unchanged(node: &Node, uids: &[String]) {
    for uid in uids {
        let at = node.dirs().root.join("pods").join(uid);
        let file = at.join("volumes/kubernetes.io~configmap/map/key");
        assert_eq!(ok(fs::read_to_string(file)), "value");
    }
}

async fn wait_settled(node: &Node, steady: &[(String, String)]) {
    for (name, id) in steady {
        let same = |pod: &PodView| {
            pod.is_ready() && pod.container("main").is_some_and(|main| main.id == *id)
        };
        wait_view(node, name, "to keep running", same).await;
    }
}

/// Names and container ids of the pods of a kind.
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
    assert_eq!(all.len(), PODS_PER_KIND);
    all
}

async fn restarts(node: &Node, kind: &str) -> Vec<u64> {
    let pods = ok(node.pods().await);
    let of = pods.iter().filter(|pod| pod.name.starts_with(kind));
    of.filter_map(|pod| pod.container("main").map(|main| main.restarts))
        .collect()
}

/// The node's own view of a pod, by its name in the API.
async fn wait_view(node: &Node, name: &str, what: &str, condition: impl Fn(&PodView) -> bool) {
    let poll = || async {
        match node.pods().await {
            Ok(pods) => match pods.into_iter().find(|pod| pod.name == name) {
                Some(pod) if condition(&pod) => Poll::Ready(()),
                Some(pod) => Poll::Pending(pod.line()),
                None => Poll::Pending(format!("no pod {name}")),
            },
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    };
    ok(until(format!("pod {name} {what}"), poll).await);
}

async fn uids(cluster: &Cluster, names: &[String]) -> Vec<String> {
    let mut uids = Vec::new();
    for name in names {
        let pod = ok(cluster.client().get(&pod_path(name)).await).unwrap();
        uids.push(pod["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    uids
}
