//! kubectl as people use it: the same session with a node of the real kubelet and with one of Polylet, side
//! by side in one cluster. What it prints must be equal, line for line; `expected_differences` lists the
//! exceptions with their reasons.
//!
//! `kubectl top` is compared by `cluster_metrics_server`: it needs another program, and two scrapes.

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, ok};
use polylet_harness::{Cluster, Node};

mod background;
mod containers;
mod crashes;
mod expected_differences;
mod logs;
mod manifests;
mod node_commands;
mod normalize;
mod pods;
mod session;
mod terminals;
mod transcript;
mod workloads;

use session::Session;
use transcript::Transcript;

/// Nodes and their namespaces, of equal length so that columns are.
const KUBELET: (&str, &str) = ("knode", "kspace");
const POLYLET: (&str, &str) = ("pnode", "pspace");

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn kubectl_prints_what_it_prints_with_the_kubelet() {
    let cluster = cluster().await;
    let kubelet_node = prepare(&cluster, KUBELET).await;
    let mut polylet_node = prepare(&cluster, POLYLET).await;
    let mut kubelet = ok(cluster.kubelet(&kubelet_node));
    ok(kubelet.start());
    ok(polylet_node.up().await);
    ok(cluster.wait_node_ready(KUBELET.0).await);
    ok(cluster.wait_node_ready(POLYLET.0).await);

    let mut steps = Steps::new();
    let (expected, found) = steps
        .require("both sessions", async {
            tokio::join!(
                session(&cluster, &kubelet_node, KUBELET),
                session(&cluster, &polylet_node, POLYLET)
            )
        })
        .await;
    steps.finish();
    // To read them, also when they are equal.
    if let Some(dir) = std::env::var_os("POLYLET_TEST_TIMELINES") {
        for (name, transcript) in [("kubelet", &expected), ("polylet", &found)] {
            ok(std::fs::write(
                std::path::Path::new(&dir).join(name),
                transcript.text(),
            ));
        }
    }
    let unexpected = transcript::differences(&expected, &found, &expected_differences::all());
    if !unexpected.is_empty() {
        polylet_node.keep_logs();
    }

    kubelet.stop(false);
    polylet_node.down();
    ok(kubelet_node.remove());
    ok(polylet_node.remove());
    ok(cluster.remove());
    println!("{} commands compared", found.len());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

async fn prepare(cluster: &Cluster, (name, namespace): (&str, &str)) -> Node {
    ok(cluster.namespace(namespace).await);
    let options = ok(cluster.node_options(name));
    let node = ok(Node::prepare(options, &|line| eprintln!("{line}")).await);
    let fixed = manifests::fixed(namespace).to_string();
    ok(node.put("fixed.json", &fixed));
    node
}

/// The whole session with one node.
async fn session(cluster: &Cluster, node: &Node, (name, namespace): (&str, &str)) -> Transcript {
    let mut session = Session::new(cluster, node, name, namespace);
    crashes::run(&mut session).await;
    pods::run(&mut session).await;
    logs::run(&mut session).await;
    containers::run(&mut session).await;
    terminals::run(&mut session).await;
    crashes::looping(&mut session).await;
    workloads::run(&mut session).await;
    pods::delete(&mut session).await;
    node_commands::run(&mut session).await;
    session.finish()
}
