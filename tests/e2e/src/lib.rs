//! End-to-end tests: whole nodes on real container runtimes. One file under `tests/` per topic, each
//! with a few tests of named steps ([`steps`]), because starting a node takes seconds.
//!
//! `cargo verify` runs them on Debian's containerd and on 2.x; those that need a control plane (file
//! names beginning with `cluster`, `api_` or `registration`) on 2.x only. Manually, as root:
//! `cargo build --release --bins && cargo test -p polylet-e2e --test images -- --ignored`.
//!
//! Environment variables: `POLYLET_TEST_CONTAINERD=v2` selects the runtime, `POLYLET_TEST_PATIENCE`
//! the timeout of any wait in seconds, `POLYLET_TEST_KEEP=1` keeps a failed node running,
//! `POLYLET_TEST_CGROUP_DRIVER=systemd` lets systemd create the cgroups, `POLYLET_TEST_LONG=1` enables
//! tests that take minutes. The control plane is built once with Go; `KUBEBUILDER_ASSETS` names a
//! directory with its programs.

use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, ClusterOptions, Node, NodeOptions, PodView, guard};
use serde_json::Value;

/// An OTLP collector.
pub mod collector;
/// Comparison with the kubelet.
pub mod kubelet_parity;
/// Priority over other work of the machine.
pub mod priority;
/// Programs to upgrade to, and the commands for it.
pub mod programs;
/// A proxy before the runtime that delays calls.
pub mod runtime_proxy;
/// Servers for probes.
pub mod servers;
/// Named steps of a test.
pub mod steps;
/// Traces that the node has recorded.
pub mod traces;
/// Recording of pod states, to check what must not happen.
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

/// Starts a node.
pub async fn node() -> Node {
    node_with(NodeOptions::default()).await
}

/// Starts a node with options.
///
/// # Panics
/// When it does not start.
pub async fn node_with(options: NodeOptions) -> Node {
    guard::on_signals();
    ok(Node::start(options).await)
}

/// Starts a control plane. The first run builds its programs, which takes minutes;
/// `KUBEBUILDER_ASSETS` names a directory with built ones.
///
/// # Panics
/// When it does not start.
pub async fn cluster() -> Cluster {
    cluster_with(&ClusterOptions::default()).await
}

/// Starts a control plane with options.
///
/// # Panics
/// When it does not start.
pub async fn cluster_with(options: &ClusterOptions) -> Cluster {
    guard::on_signals();
    ok(Cluster::start(options, &|line| eprintln!("{line}")).await)
}

/// Starts a node of a cluster and waits until it is Ready there.
///
/// # Panics
/// When it does not start.
pub async fn cluster_node(cluster: &Cluster) -> Node {
    let node = node_with(ok(cluster.node_options("node"))).await;
    ok(cluster.wait_node_ready("node").await);
    node
}

/// Waits until the node's log contains a text.
pub async fn wait_for_log(node: &Node, what: &str) {
    wait_for_log_count(node, what, 1).await;
}

/// Waits until this many lines of the node's log contain a text.
pub async fn wait_for_log_count(node: &Node, what: &str, times: usize) {
    let log = node.log();
    ok(until(format!("{what:?} in the log"), || async {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let found = text.lines().filter(|line| line.contains(what)).count();
        if found >= times {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{found} of {times} times"))
        }
    })
    .await);
}

/// Writes the example's manifests and waits until its pod is Ready.
pub async fn example(node: &Node) -> PodView {
    for (name, text) in EXAMPLE {
        ok(node.put(name, text));
    }
    ok(node.wait_ready("web").await)
}

/// Runs a shell script in a container of a pod and returns its output without the last line end.
///
/// # Panics
/// When the pod has no such container, or the script fails.
pub async fn exec(node: &Node, pod: &PodView, container: &str, script: &str) -> String {
    ok(try_exec(node, pod, container, script).await)
        .trim_end()
        .to_owned()
}

/// The same for a script that may fail, for one because it ends its own container.
///
/// # Errors
/// When the script cannot be run or does not exit with 0.
///
/// # Panics
/// When the pod has no such container.
pub async fn try_exec(
    node: &Node,
    pod: &PodView,
    container: &str,
    script: &str,
) -> Result<String, polylet_harness::HarnessError> {
    let Some(container) = pod.container(container) else {
        panic!("{} has no container {container}", pod.name);
    };
    let id = container.id.trim_start_matches("containerd://");
    node.containerd.exec(id, &["sh", "-c", script]).await
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

/// Whether tests that take minutes are enabled by `POLYLET_TEST_LONG=1`.
pub fn long() -> bool {
    let enabled = std::env::var_os("POLYLET_TEST_LONG").is_some();
    if !enabled {
        println!("skipped: takes minutes; set POLYLET_TEST_LONG=1");
    }
    enabled
}

/// A script that runs until SIGTERM.
pub const RUNS: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// The value, or a panic with the error and its causes.
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
