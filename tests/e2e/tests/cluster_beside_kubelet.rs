//! Beside the real kubelet: on one machine, in one cluster and with one configuration, first the
//! kubelet runs and then Polylet, and what the cluster holds of the node must be the same: the Node,
//! its lease, its CSINode, and the events of pods to which the same happens. What may differ is named
//! in `rightly` with the reason; every other difference fails.

use polylet_e2e::{cluster, ok};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

#[path = "cluster_beside_kubelet/cases.rs"]
mod cases;
#[path = "cluster_beside_kubelet/events.rs"]
mod events;
#[path = "cluster_beside_kubelet/rightly.rs"]
mod rightly;
#[path = "cluster_beside_kubelet/shape.rs"]
mod shape;

use cases::Case;
use shape::Lines;

#[tokio::test]
#[ignore = "needs root, a container runtime, the programs of a cluster: cargo verify"]
async fn nobody_can_tell_them_apart() {
    compare(&cases::short()).await;
}

#[tokio::test]
#[ignore = "takes minutes: POLYLET_TEST_LONG=1 runs all cases, by hand"]
async fn nobody_can_tell_them_apart_in_many_cases() {
    if std::env::var_os("POLYLET_TEST_LONG").is_some() {
        compare(&cases::all()).await;
    }
}

/// Runs the cases under both, and compares all that is held in the end.
async fn compare(cases: &[Case]) {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    options.kubelet["registerWithTaints"] =
        json!([{ "key": "tests.polylet.dev/own", "effect": "PreferNoSchedule" }]);
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));

    ok(kubelet.up());
    let expected = seen(&cluster, &node, cases, "first").await;
    kubelet.down(false);
    forget(&cluster).await;
    ok(node.up().await);
    let found = seen(&cluster, &node, cases, "second").await;

    node.down();
    ok(node.remove());
    ok(cluster.remove());
    let wrong = shape::differences(&expected, &found, &rightly::all());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the cluster holds of a node when all cases have happened on it.
async fn seen(cluster: &Cluster, node: &Node, cases: &[Case], namespace: &str) -> Lines {
    ok(cluster.wait_node_ready("node").await);
    ok(cluster.namespace(namespace).await);
    let ran = events::of_cases(cluster, node, cases, namespace).await;
    let mut lines = Lines::new();
    for (what, path) in objects() {
        // The kubelet's first lease may come ten seconds late.
        let object = ok(cluster.wait(&path, "to be there", |_| true).await);
        lines.extend(shape::of_object(what, object));
    }
    lines.extend(ran);
    lines.extend(events::of_node(cluster).await);
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

/// The node is as if it had never been there.
async fn forget(cluster: &Cluster) {
    for (_, path) in objects() {
        // What is owned by the Node may have gone with it.
        let _ = cluster.client().delete(&path, &Value::Null).await;
    }
    for (_, path) in objects() {
        ok(cluster.wait_absent(&path).await);
    }
    let events = "/api/v1/namespaces/default/events";
    ok(cluster.client().delete(events, &Value::Null).await);
}
