//! Very many pods at once, very large ones, and ones that say more than this build knows: the node
//! takes what it can, says of the rest what upstream says, and stays quick.

#[path = "cluster_crowd/large.rs"]
mod large;
#[path = "cluster_crowd/many_parts.rs"]
mod many_parts;

use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node, PodView};
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

/// As many pods as a large node is told to take, of which those beyond what one bridge has addresses
/// for are on the node's own network.
#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn six_hundred_pods_on_one_node() {
    if !polylet_e2e::long() {
        return;
    }
    let cluster = cluster().await;
    let mut node = node_to_come(&cluster, json!({ "maxPods": 600 })).await;
    for number in 0..600 {
        let own = json!({ "hostNetwork": number >= 200 });
        let pod = bound(&format!("p{number:03}"), &own);
        ok(cluster.client().create(PODS, &pod).await);
    }
    let begun = Instant::now();
    ok(node.up().await);
    all_ready(&node, 600).await;
    println!("600 ready after {:?}", begun.elapsed());
    show(&node).await;
    let before = identities(&node).await;
    let (_, mark) = ok(cluster.requests(0));
    let begun = Instant::now();
    node.down();
    ok(node.up().await);
    ok(node.wait_in_step().await);
    all_ready(&node, 600).await;
    println!("the services begun anew: {:?}", begun.elapsed());
    assert_eq!(before, identities(&node).await);
    let (since, _) = ok(cluster.requests(mark));
    let told = since
        .iter()
        .filter(|request| request.line().contains("/status") && request.line().contains("pods"));
    let told: Vec<String> = told.map(|request| request.line()).collect();
    assert_eq!(told, [""; 0], "nothing has changed");
    let begun = Instant::now();
    ok(cluster
        .kubectl(&["delete", "pods", "--all", "--wait=false"])
        .await);
    for left in (0..600).step_by(50).rev() {
        ok(until(format!("{left} pods to be left"), || async {
            match phases(&cluster).await.len() {
                few if few <= left => Look::Done(()),
                many => Look::NotYet(format!("{many}")),
            }
        })
        .await);
    }
    println!("600 gone after {:?}", begun.elapsed());
    ok(node.remove());
    ok(cluster.remove());
}

/// Waits until so many pods are Ready, as long as they go on becoming so.
async fn all_ready(node: &Node, pods: usize) {
    for some in (0..=pods).step_by(10).skip(1) {
        ok(until(format!("{some} pods to be Ready"), || async {
            let pods = node.pods().await.unwrap_or_default();
            match pods.iter().filter(|pod| pod.is_ready()).count() {
                ready if ready >= some => Look::Done(()),
                ready => Look::NotYet(format!("{ready}")),
            }
        })
        .await);
    }
}

/// What tells whether anything of the pods was made anew.
async fn identities(node: &Node) -> Vec<Vec<(String, String, u64)>> {
    let pods = ok(node.pods().await);
    pods.iter().map(PodView::identity).collect()
}

/// The services, none of which was started again.
async fn show(node: &Node) {
    let table = ok(node.cli(&["status"]).await);
    println!("{}", String::from_utf8_lossy(&table.stdout));
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{}", service.name);
    }
}
