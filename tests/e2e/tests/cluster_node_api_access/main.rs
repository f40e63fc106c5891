//! Who may ask what of the node API: every endpoint, each method and each kind of caller, asked of the real
//! kubelet and of Polylet, which are two nodes of one cluster. Status codes, the headers that matter and the
//! bodies of refusals must be equal; `expected_differences` lists the exceptions with their reasons.

use std::collections::BTreeMap;
use std::time::Instant;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::is_ready;
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

mod callers;
mod client;
mod expected_differences;
mod requests;

use callers::NodeApiCaller;

/// Nodes and their namespaces.
const KUBELET: (&str, &str) = ("knode", "kspace");
const POLYLET: (&str, &str) = ("pnode", "pspace");

/// ResponsesByRequest by caller, method and path.
type ResponsesByRequest = BTreeMap<String, String>;

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn every_caller_gets_what_it_gets_from_the_kubelet() {
    let cluster = cluster().await;
    let kubelet_node = prepare(&cluster, KUBELET).await;
    let mut polylet_node = prepare(&cluster, POLYLET).await;
    let mut kubelet = ok(cluster.kubelet(&kubelet_node));
    ok(kubelet.start());
    ok(polylet_node.up().await);
    for node in [KUBELET, POLYLET] {
        ok(cluster.wait_node_ready(node.0).await);
        create_pod(&cluster, node).await;
    }
    let mut steps = Steps::new();
    let callers = steps
        .require("callers", callers::create(&cluster, &kubelet_node))
        .await;
    let expected = ask_all(&mut steps, &callers, &kubelet_node, KUBELET).await;
    let found = ask_all(&mut steps, &callers, &polylet_node, POLYLET).await;
    steps.finish();
    if let Some(dir) = std::env::var_os("POLYLET_TEST_TIMELINES") {
        for (name, responses) in [("kubelet", &expected), ("polylet", &found)] {
            let lines = responses.iter();
            let lines: String = lines
                .map(|(key, value)| format!("{key}: {value}\n"))
                .collect();
            ok(std::fs::write(std::path::Path::new(&dir).join(name), lines));
        }
    }

    kubelet.stop(false);
    polylet_node.down();
    ok(kubelet_node.remove());
    ok(polylet_node.remove());
    ok(cluster.remove());
    assert_eq!(expected.len(), found.len());
    let unexpected = expected_differences::unexpected(&expected, &found);
    assert!(
        unexpected.is_empty(),
        "{} differences:\n{}",
        unexpected.len(),
        unexpected.join("\n")
    );
}

async fn prepare(cluster: &Cluster, (name, namespace): (&str, &str)) -> Node {
    ok(cluster.namespace(namespace).await);
    let options = ok(cluster.node_options(name));
    ok(Node::prepare(options, &|line| eprintln!("{line}")).await)
}

/// The pod that requests name.
async fn create_pod(cluster: &Cluster, (node, namespace): (&str, &str)) {
    let mut pod: Value = ok(serde_json::from_str(&pod("web", RUNS, &json!({}))));
    pod["spec"]["nodeName"] = node.into();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    ok(cluster.client().create(&pods, &pod).await);
    ok(cluster
        .wait(&format!("{pods}/web"), "to be Ready", is_ready)
        .await);
}

async fn ask_all(
    steps: &mut Steps,
    callers: &[NodeApiCaller],
    node: &Node,
    (name, namespace): (&str, &str),
) -> ResponsesByRequest {
    let begun = Instant::now();
    let work = async {
        let asked = callers
            .iter()
            .map(|caller| requests::ask(caller, node.ports().0, namespace));
        let answers = futures::future::join_all(asked).await;
        answers
            .into_iter()
            .flatten()
            .collect::<ResponsesByRequest>()
    };
    let responses = steps.require(&format!("requests to {name}"), work).await;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name}: {} requests in {seconds:.1} s", responses.len());
    responses
        .into_iter()
        .map(|(key, value)| (key.replace(namespace, "NS"), value.replace(namespace, "NS")))
        .collect()
}
