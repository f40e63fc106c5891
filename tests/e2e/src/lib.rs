//! End-to-end tests: whole nodes on real container runtimes. One file under `tests/` per theme,
//! each with few and rich tests, because a node costs seconds and two cores have to do.
//!
//! `cargo verify` runs them, once with Debian's containerd and once with 2.x; those that need a whole
//! cluster, whose files' names begin with `cluster`, with 2.x alone. By hand, as root:
//! `cargo build --release --bins && cargo test -p polylet-e2e --test walk -- --ignored`.
//! `POLYLET_TEST_CONTAINERD=v2` chooses the runtime, `POLYLET_TEST_PATIENCE` the seconds that any
//! wait may take, and `POLYLET_TEST_KEEP=1` leaves a failed node as it is. Where systemd runs,
//! `POLYLET_TEST_CGROUP_DRIVER=systemd` has it make the cgroups. A cluster's programs are built with Go
//! once; `KUBEBUILDER_ASSETS` names a directory that has them. Tests that take minutes do nothing
//! without `POLYLET_TEST_LONG=1`.

use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, ClusterOptions, Node, NodeOptions, PodView, guard};
use serde_json::Value;

/// The same pods under the kubelet and under Polylet.
pub mod beside;
/// A collector of spans, as any backend of traces has one.
pub mod collector;
/// Servers for probes.
pub mod servers;
/// Watching pods for what must not happen.
pub mod watch;

/// The demo's example: a ConfigMap, a Secret and a pod named `web` that serves on port 8080.
pub const EXAMPLE: [(&str, &str); 3] = [
    (
        "configmap.yaml",
        include_str!("../../demo/example/configmap.yaml"),
    ),
    (
        "secret.yaml",
        include_str!("../../demo/example/secret.yaml"),
    ),
    ("pod.yaml", include_str!("../../demo/example/pod.yaml")),
];

/// A node that runs.
pub async fn node() -> Node {
    node_with(NodeOptions::default()).await
}

/// A node that runs, set up in a special way.
///
/// # Panics
/// When it does not come up.
pub async fn node_with(options: NodeOptions) -> Node {
    guard::on_signals();
    ok(Node::start(options).await)
}

/// A control plane that runs. The first one ever builds its programs, which takes minutes;
/// `KUBEBUILDER_ASSETS` names a directory that has them.
///
/// # Panics
/// When it does not come up.
pub async fn cluster() -> Cluster {
    cluster_with(&ClusterOptions::default()).await
}

/// A control plane that runs, set up in a special way.
///
/// # Panics
/// When it does not come up.
pub async fn cluster_with(options: &ClusterOptions) -> Cluster {
    guard::on_signals();
    ok(Cluster::start(options, &|line| eprintln!("{line}")).await)
}

/// A node of a cluster that runs and is Ready there.
///
/// # Panics
/// When it does not come up.
pub async fn cluster_node(cluster: &Cluster) -> Node {
    let node = node_with(ok(cluster.node_options("node"))).await;
    ok(cluster.wait_node_ready("node").await);
    node
}

/// Waits until the node's log holds a line.
pub async fn node_says(node: &Node, what: &str) {
    node_says_times(node, what, 1).await;
}

/// Waits until the node's log holds a line so many times: once for each life that says it.
pub async fn node_says_times(node: &Node, what: &str, times: usize) {
    let log = node.log();
    ok(until(format!("the log to say {what:?}"), || async {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let said = text.lines().filter(|line| line.contains(what)).count();
        if said >= times {
            Look::Done(())
        } else {
            Look::NotYet(format!("{said} times of {times}"))
        }
    })
    .await);
}

/// Puts the example and waits until it is Ready.
pub async fn example(node: &Node) -> PodView {
    for (name, text) in EXAMPLE {
        ok(node.put(name, text));
    }
    ok(node.wait_ready("web").await)
}

/// A pod of one container that runs a shell script; `more` are further fields of its spec.
pub fn pod(name: &str, script: &str, more: &Value) -> String {
    let mut pod = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "main",
                "image": "polylet-test:1",
                "command": ["sh", "-c", script],
            }],
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            // Fields of the one container; all else are fields of the spec.
            ("container", Value::Object(fields)) => {
                for (key, value) in fields {
                    pod["spec"]["containers"][0][key] = value.clone();
                }
            }
            _ => pod["spec"][key] = value.clone(),
        }
    }
    pod.to_string()
}

/// Whether tests that take minutes are asked for, by `POLYLET_TEST_LONG=1`: they are run by hand.
pub fn long() -> bool {
    let asked = std::env::var_os("POLYLET_TEST_LONG").is_some();
    if !asked {
        println!("left out: it takes minutes, and runs with POLYLET_TEST_LONG=1");
    }
    asked
}

/// A script that runs until it is told to end.
pub const RUNS: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// The value, or a panic that tells the whole error.
///
/// # Panics
/// On an error.
#[track_caller]
pub fn ok<T, E: std::error::Error>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}", polylet_harness::error::report(&error)),
    }
}
