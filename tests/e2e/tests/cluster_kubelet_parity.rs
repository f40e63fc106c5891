//! Parity with the real kubelet: on one machine, in one cluster and with one configuration, first the
//! kubelet runs and then Polylet. The Node, its Lease, its CSINode and the events of pods in the same
//! situations must be equal. `expected_differences` lists the exceptions with their reasons; any other
//! difference fails the test.

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, ok};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

#[path = "cluster_kubelet_parity/cases.rs"]
mod cases;
#[path = "cluster_kubelet_parity/events.rs"]
mod events;
#[path = "cluster_kubelet_parity/expected_differences.rs"]
mod expected_differences;
#[path = "cluster_kubelet_parity/shape.rs"]
mod shape;

use cases::Case;
use shape::Lines;

#[tokio::test]
#[ignore = "needs root, a container runtime, the programs of a cluster: cargo verify"]
async fn node_object_and_events_match_the_kubelet() {
    compare(&cases::short()).await;
}

#[tokio::test]
#[ignore = "takes minutes: POLYLET_TEST_LONG=1 runs all cases, by hand"]
async fn node_object_and_events_match_the_kubelet_in_all_cases() {
    if std::env::var_os("POLYLET_TEST_LONG").is_some() {
        compare(&cases::all()).await;
    }
}

/// Runs the cases under both agents and compares the resulting objects and events.
async fn compare(cases: &[Case]) {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["registerWithTaints"] =
        json!([{ "key": "tests.polylet.dev/own", "effect": "PreferNoSchedule" }]);
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));

    ok(kubelet.start());
    let mut steps = Steps::new();
    steps
        .require(
            "cases under the kubelet",
            run_cases(&cluster, &node, cases, "first"),
        )
        .await;
    let expected = observe(&cluster, "first").await;
    kubelet.stop(false);
    delete_objects(&cluster).await;
    ok(node.up().await);
    steps
        .require(
            "cases under Polylet",
            run_cases(&cluster, &node, cases, "second"),
        )
        .await;
    let unexpected = wait_for_differences(&cluster, "second", &expected).await;
    steps.finish();

    node.down();
    ok(node.remove());
    ok(cluster.remove());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// Runs all cases in a namespace of their own.
async fn run_cases(cluster: &Cluster, node: &Node, cases: &[Case], namespace: &str) {
    ok(cluster.wait_node_ready("node").await);
    ok(cluster.namespace(namespace).await);
    events::run_cases(cluster, node, cases, namespace).await;
}

/// The unexpected differences that are left once what is late has come: events are sent behind what they
/// are about.
async fn wait_for_differences(cluster: &Cluster, namespace: &str, expected: &Lines) -> Vec<String> {
    let exceptions = expected_differences::all();
    let differences = || async {
        let found = observe(cluster, namespace).await;
        shape::differences(expected, &found, &exceptions)
    };
    let equal = until("no difference", || async {
        match differences().await {
            found if found.is_empty() => Poll::Ready(()),
            found => Poll::Pending(found.join("\n")),
        }
    });
    match equal.await {
        Ok(()) => Vec::new(),
        Err(_) => differences().await,
    }
}

/// Objects and events of a node after all cases.
async fn observe(cluster: &Cluster, namespace: &str) -> Lines {
    let mut lines = Lines::new();
    for (what, path) in objects() {
        // The kubelet's first lease may be ten seconds late.
        let object = ok(cluster.wait(&path, "to exist", |_| true).await);
        lines.extend(shape::object_lines(what, object));
    }
    lines.extend(events::pod_events(cluster, namespace).await);
    lines.extend(events::node_events(cluster).await);
    lines
}

fn objects() -> [(&'static str, String); 3] {
    [
        ("Node", "/api/v1/nodes/node".to_owned()),
        (
            "Lease",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node".to_owned(),
        ),
        (
            "CSINode",
            "/apis/storage.k8s.io/v1/csinodes/node".to_owned(),
        ),
    ]
}

/// Deletes all objects of the node.
async fn delete_objects(cluster: &Cluster) {
    for (_, path) in objects() {
        // Objects owned by the Node may already be gone.
        let _ = cluster.client().delete(&path, &Value::Null).await;
    }
    for (_, path) in objects() {
        ok(cluster.wait_absent(&path).await);
    }
    let events = "/api/v1/namespaces/default/events";
    ok(cluster.client().delete(events, &Value::Null).await);
}
