//! Many pods at once, very large pods, and pods with unknown fields: the node admits what fits,
//! rejects the rest as upstream does, and stays responsive.

#[path = "cluster_scale/large.rs"]
mod large;
#[path = "cluster_scale/many_parts.rs"]
mod many_parts;

use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, PodView};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A node that is not running yet; pods can already be bound to it.
async fn node_not_started(cluster: &Cluster, kubelet: Value) -> Node {
    polylet_harness::guard::on_signals();
    let mut options = ok(cluster.node_options("node"));
    for (field, value) in kubelet.as_object().into_iter().flatten() {
        options.kubelet[field] = value.clone();
    }
    ok(Node::prepare(options, &|line| eprintln!("{line}")).await)
}

/// A bound pod with one container.
fn bound(name: &str, more: &Value) -> Value {
    let mut pod: Value = serde_json::from_str(&pod(name, RUNS, more)).unwrap();
    pod["spec"]["nodeName"] = "node".into();
    pod["spec"]["automountServiceAccountToken"] = false.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
    pod
}

/// Phase and reason of every pod.
async fn phases(cluster: &Cluster) -> Vec<(String, String, String)> {
    let template = "jsonpath={range .items[*]}{.metadata.name} {.status.phase}/{.status.reason}/{.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let output = ok(cluster.kubectl(&["get", "pods", "-o", template]).await);
    let lines = output.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let mut parts = rest.splitn(2, '/');
        let phase = parts.next()?.to_owned();
        Some((name.to_owned(), phase, parts.next()?.to_owned()))
    });
    lines.collect()
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn five_hundred_pods_are_bound_at_once() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_not_started(&cluster, json!({})).await;
    let started = Instant::now();
    for number in 0..500 {
        // In sequence: the oldest pods are admitted.
        let pod = bound(&format!("p{number:03}"), &json!({}));
        ok(cluster.client().create(PODS, &pod).await);
        if number == 100 {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    println!("500 made in {:?}", started.elapsed());
    let started = Instant::now();
    ok(node.up().await);
    ok(until("every pod to be admitted or rejected", || async {
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
            (110, 390) => Poll::Ready(()),
            _ => Poll::Pending(format!(
                "{:?}: {runs} run, {refused} refused",
                started.elapsed()
            )),
        }
    })
    .await);
    println!("500 judged, 110 ready after {:?}", started.elapsed());
    // The oldest pods were admitted.
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
    assert_eq!(first, 101, "the earliest pods are admitted");
    assert_eq!(
        refused["status"]["message"],
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"
    );
    ok(node.remove());
    ok(cluster.remove());
}

/// The `maxPods` of a large node. Pods beyond the bridge's addresses use the host network.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn six_hundred_pods_on_one_node() {
    let mut steps = Steps::new();
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_not_started(&cluster, json!({ "maxPods": 600 })).await;
    for number in 0..600 {
        let own = json!({ "hostNetwork": number >= 200 });
        let pod = bound(&format!("p{number:03}"), &own);
        ok(cluster.client().create(PODS, &pod).await);
    }
    let started = Instant::now();
    ok(node.up().await);
    steps.run("all ready", all_ready(&node, 600)).await;
    println!("600 ready after {:?}", started.elapsed());
    steps.run("check services", check_services(&node)).await;
    let before = identities(&node).await;
    let (_, mark) = ok(cluster.requests(0));
    let started = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    steps.run("all ready", all_ready(&node, 600)).await;
    println!("the services restarted: {:?}", started.elapsed());
    assert_eq!(before, identities(&node).await);
    let (since, _) = ok(cluster.requests(mark));
    let output = since
        .iter()
        .filter(|request| request.line().contains("/status") && request.line().contains("pods"));
    let output: Vec<String> = output.map(|request| request.line()).collect();
    assert_eq!(output, [""; 0], "nothing has changed");
    let started = Instant::now();
    ok(cluster
        .kubectl(&["delete", "pods", "--all", "--wait=false"])
        .await);
    for left in (0..600).step_by(50).rev() {
        ok(until(format!("{left} pods to be left"), || async {
            match phases(&cluster).await.len() {
                few if few <= left => Poll::Ready(()),
                many => Poll::Pending(format!("{many}")),
            }
        })
        .await);
    }
    println!("600 gone after {:?}", started.elapsed());
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Waits until this many pods are Ready, as long as there is progress.
async fn all_ready(node: &Node, pods: usize) {
    for some in (0..=pods).step_by(10).skip(1) {
        ok(until(format!("{some} pods to be Ready"), || async {
            let pods = node.pods().await.unwrap_or_default();
            match pods.iter().filter(|pod| pod.is_ready()).count() {
                ready if ready >= some => Poll::Ready(()),
                ready => Poll::Pending(format!("{ready}")),
            }
        })
        .await);
    }
}

/// Identities that show whether anything was recreated.
async fn identities(node: &Node) -> Vec<Vec<(String, String, u64)>> {
    let pods = ok(node.pods().await);
    pods.iter().map(PodView::identity).collect()
}

/// Prints the services and checks that none was restarted.
async fn check_services(node: &Node) {
    let table = ok(node.cli(&["status"]).await);
    println!("{}", String::from_utf8_lossy(&table.stdout));
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{}", service.name);
    }
}
