//! Streams of containers through a real API server, by kubectl: commands, terminals, attached containers,
//! copied files and forwarded ports, over WebSockets and over SPDY; and their errors, asked of the node API
//! itself. An exec, a forwarded port and a followed log go on while each other service is killed, and while
//! node-api is upgraded.

use polylet_e2e::programs::installed;
use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, node_with, ok};
use polylet_harness::Cluster;
use serde_json::{Value, json};

mod commands;
mod forward;
mod kubectl;
mod node_errors;
mod survival;

use kubectl::{Kubectl, Protocol};

/// Serves numbers on port 8080, and sends back what it receives on port 9000.
const SERVER: &str = "mkdir /www; seq 1 3000000 >/www/numbers; echo hello >/www/index.html; \
    nc -ll -p 9000 -e cat & exec httpd -f -p 8080 -h /www";
/// Says what it reads, until its input ends.
const READER: &str = "while read -r line; do echo \"read $line\"; done; echo end";
/// Prints a line with a number, about twenty times a second.
const COUNTER: &str = "i=0; while :; do i=$((i+1)); echo \"line $i\"; sleep 0.05; done";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn streams_through_the_api_server() {
    let cluster = cluster().await;
    // An upgrade writes beside the programs.
    let bin = installed();
    let mut options = ok(cluster.node_options("node"));
    options.bin_dir = Some(bin.path().to_owned());
    let mut node = node_with(options).await;
    ok(cluster.wait_node_ready("node").await);
    let mut steps = Steps::new();
    create(&cluster, "server", SERVER, &json!({})).await;
    create(&cluster, "counter", COUNTER, &json!({})).await;
    ok(cluster.wait_pod_ready("server").await);
    ok(cluster.wait_pod_ready("counter").await);
    steps
        .run("the node declares that it translates WebSockets", async {
            let node = ok(cluster.client().get("/api/v1/nodes/node").await).unwrap();
            let features = node["status"]["declaredFeatures"].as_array();
            let feature = json!("ExtendWebSocketsToKubelet");
            assert!(features.is_some_and(|all| all.contains(&feature)), "{node}");
        })
        .await;
    for protocol in [Protocol::WebSocket, Protocol::Spdy] {
        let kubectl = Kubectl::new(&cluster, protocol);
        let name = |what: &str| format!("{what} over {protocol:?}");
        steps.run(&name("commands"), commands::run(&kubectl)).await;
        steps
            .run(&name("a terminal"), commands::terminal(&kubectl))
            .await;
        let reader = format!("reader-{}", protocol.name());
        let fields = json!({"stdin": true, "stdinOnce": true});
        create(&cluster, &reader, READER, &fields).await;
        ok(cluster.wait_pod_ready(&reader).await);
        steps
            .run(&name("attach"), commands::attach(&kubectl, &reader))
            .await;
        steps
            .run(&name("copied files"), commands::copy(&kubectl))
            .await;
        steps
            .run(&name("forwarded ports"), forward::ports(&kubectl))
            .await;
    }
    steps
        .run("errors", node_errors::errors(&cluster, &node))
        .await;
    steps
        .run(
            "streams go on while services are killed",
            survival::streams_go_on(&cluster, &mut node),
        )
        .await;
    steps
        .run(
            "streams go on while node-api is upgraded",
            survival::streams_outlive_upgrades(&cluster, &node),
        )
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// Creates a pod of one container; `more` are further fields of the container.
async fn create(cluster: &Cluster, name: &str, script: &str, more: &Value) {
    let restarts = json!({"restartPolicy": "Never", "container": more});
    let pod = polylet_e2e::pod(name, script, &restarts);
    let pod: Value = serde_json::from_str(&pod).expect("a pod");
    let pods = "/api/v1/namespaces/default/pods";
    ok(cluster.client().create(pods, &pod).await);
}
