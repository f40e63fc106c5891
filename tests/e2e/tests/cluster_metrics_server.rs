//! A real metrics-server scrapes the node, and `kubectl top` shows what the node says of itself.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, ok, pod};
use polylet_harness::cluster::is_ready;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

/// Uses some tenths of a processor and some 20 MB, steadily.
const BUSY: &str = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); while true; do i=0; \
                    while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done";

/// Processor in millicores and memory in MiB, as `kubectl top` shows them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    millicores: f64,
    mebibytes: f64,
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster, metrics-server: cargo verify"]
async fn kubectl_top_shows_the_usage_of_the_node_and_its_pods() {
    let cluster = cluster().await;
    let options = ok(cluster.node_options("node"));
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));
    let mut server = ok(cluster.metrics_server(&|line| println!("{line}")).await);
    ok(kubelet.start());
    let mut steps = Steps::new();
    let expected = steps
        .require(
            "metrics-server scrapes the kubelet",
            shown(&cluster, "kubelet"),
        )
        .await;
    kubelet.stop(false);
    ok(node.up().await);
    let found = steps
        .require("metrics-server scrapes Polylet", shown(&cluster, "polylet"))
        .await;
    steps.finish();
    println!("the kubelet: {expected:?}\nPolylet: {found:?}");

    server.stop(true);
    node.down();
    ok(node.remove());
    ok(cluster.remove());
    // The same pod under two agents; the machine is shared with all else that runs on it.
    assert!(
        is_near(found.mebibytes, expected.mebibytes, 8.0),
        "memory of the pod"
    );
    assert!(
        is_near(found.millicores, expected.millicores, 300.0),
        "processor of the pod"
    );
}

/// What `kubectl top pod` shows of a pod under an agent, after it was compared with what the node says.
async fn shown(cluster: &Cluster, agent: &'static str) -> Usage {
    ok(cluster.wait_node_ready("node").await);
    ok(cluster.namespace(agent).await);
    let pods = format!("/api/v1/namespaces/{agent}/pods");
    let mut object: Value = ok(serde_json::from_str(&pod("busy", BUSY, &json!({}))));
    object["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(&pods, &object).await);
    ok(cluster
        .wait(&format!("{pods}/busy"), "to be Ready", is_ready)
        .await);
    let usage = top(
        cluster,
        &["top", "pod", "busy", "-n", agent, "--no-headers"],
    )
    .await;
    let of_node = top(cluster, &["top", "node", "node", "--no-headers"]).await;
    let own = own_usage(cluster, agent).await;
    println!("{agent}: pod {usage:?}, node {of_node:?}; of the node itself: {own:?}");
    // Both measure over some seconds that are not the same ones.
    assert!(
        is_near(usage.mebibytes, own["pod"].mebibytes, 8.0),
        "{usage:?} {own:?}"
    );
    assert!(
        is_near(usage.millicores, own["pod"].millicores, 250.0),
        "{usage:?} {own:?}"
    );
    assert!(
        usage.millicores > 10.0 && usage.mebibytes > 15.0,
        "{usage:?}"
    );
    assert!(of_node.mebibytes > usage.mebibytes, "{of_node:?}");
    let node = own["node"].mebibytes;
    assert!(
        is_near(of_node.mebibytes, node, 0.3 * node),
        "{of_node:?} {own:?}"
    );
    ok(cluster
        .client()
        .delete(&format!("{pods}/busy"), &json!({ "gracePeriodSeconds": 0 }))
        .await);
    ok(cluster.wait_absent(&format!("{pods}/busy")).await);
    usage
}

fn is_near(one: f64, other: f64, by: f64) -> bool {
    (one - other).abs() <= by
}

/// A line of `kubectl top`, once metrics-server has two scrapes of it: a pod's has its memory after
/// its processor, a node's the share of the processor in between.
async fn top(cluster: &Cluster, words: &[&str]) -> Usage {
    let memory = if words.contains(&"node") { 3 } else { 2 };
    ok(until(words.join(" "), || async {
        let line = match cluster.kubectl(words).await {
            Ok(line) => line,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |column: usize, unit: &str| {
            let text = columns.get(column)?.strip_suffix(unit)?;
            text.parse::<f64>().ok()
        };
        match number(1, "m").zip(number(memory, "Mi")) {
            Some((millicores, mebibytes)) => Poll::Ready(Usage {
                millicores,
                mebibytes,
            }),
            None => Poll::Pending(line),
        }
    })
    .await)
}

/// Usage of the node and of the pod by two scrapes of `/metrics/resource`, once the second one has new
/// samples: a kubelet measures a pod every ten seconds or less often.
async fn own_usage(cluster: &Cluster, namespace: &str) -> BTreeMap<&'static str, Usage> {
    let first = resource(cluster, namespace).await;
    let second = until("new samples", || async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let second = resource(cluster, namespace).await;
        let is_new = |key: &str| second[key].2 >= first[key].2 + 5000.0;
        if is_new("node") && is_new("pod") {
            Poll::Ready(second)
        } else {
            Poll::Pending(format!("{second:?}"))
        }
    });
    let second = ok(second.await);
    let usage = |key: &'static str| {
        let ((_, from, at), (memory, to, then)) = (first[key], second[key]);
        let usage = Usage {
            millicores: (to - from) / (then - at) * 1e6,
            mebibytes: memory / f64::from(1 << 20),
        };
        (key, usage)
    };
    ["node", "pod"].map(usage).into()
}

/// Memory in bytes, processor seconds and their time in milliseconds, of the node and of the pod.
async fn resource(cluster: &Cluster, namespace: &str) -> BTreeMap<&'static str, (f64, f64, f64)> {
    let path = "/api/v1/nodes/node/proxy/metrics/resource";
    let text = ok(cluster.client().text(path).await);
    let value = |name: &str, labels: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        let line = lines.find(|line| line.contains(labels));
        let line = line.unwrap_or_else(|| panic!("no {name} {labels} in {text}"));
        let mut words = line.split_whitespace().rev();
        let (at, value) = (words.next(), words.next());
        let parse = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok());
        (parse(value).expect("a value"), parse(at).expect("a time"))
    };
    let of = |memory: &str, processor: &str, labels: &str| {
        let (bytes, _) = value(memory, labels);
        let (seconds, at) = value(processor, labels);
        (bytes, seconds, at)
    };
    let labels = format!("namespace=\"{namespace}\",pod=\"busy\"");
    BTreeMap::from([
        (
            "node",
            of(
                "node_memory_working_set_bytes ",
                "node_cpu_usage_seconds_total ",
                "",
            ),
        ),
        (
            "pod",
            of(
                "pod_memory_working_set_bytes",
                "pod_cpu_usage_seconds_total",
                &labels,
            ),
        ),
    ])
}
