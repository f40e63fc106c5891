//! A node of a real cluster: kube-apiserver, scheduler and controller manager, with Polylet in the
//! kubelet's place.

use std::fs;

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, cluster_node, ok};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, cleanup, procs};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn control_plane_starts_and_is_removed() {
    let mut cluster = cluster().await;
    for (step, took) in &cluster.took {
        println!("{step}: {} ms", took.as_millis());
    }
    let mut steps = Steps::new();
    steps
        .run("objects survive an API server restart", async {
            ok(cluster.namespace("made").await);
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kept" },
                "data": { "key": "value" },
            });
            let maps = "/api/v1/namespaces/made/configmaps";
            ok(cluster.client().create(maps, &map).await);

            cluster.stop_api();
            assert!(cluster.client().get(maps).await.is_err());
            ok(cluster.start_api().await);
            let stored = ok(cluster.client().get(&format!("{maps}/kept")).await).unwrap();
            assert_eq!(stored["data"]["key"], "value");
            let output = ok(cluster.kubectl(&["get", "namespaces", "-o", "name"]).await);
            assert!(output.contains("namespace/made"), "{output}");
        })
        .await;
    steps
        .run("a node's permissions are restricted", async {
            // Permissions of a node's certificate, and the counting of its requests.
            let kubeconfig = ok(cluster.node_kubeconfig("someone"));
            let selector = "--field-selector=spec.nodeName=someone";
            ok(cluster
                .kubectl_as(&kubeconfig, &["get", "pods", "-A", selector])
                .await);
            let all = cluster.kubectl_as(&kubeconfig, &["get", "secrets", "-A"]);
            assert!(all.await.is_err(), "a node may not read all secrets");
            let (requests, _) = ok(cluster.requests(0));
            let lines: Vec<_> = requests.iter().map(|request| request.line()).collect();
            assert_eq!(lines.last().unwrap(), "list secrets / 403", "{lines:?}");
        })
        .await;
    steps.finish();
    let dir = cluster.scratch().to_owned();
    assert_eq!(procs::list(&dir).len(), 4);
    ok(cluster.remove());
    assert_eq!(procs::list(&dir).len(), 0);
    assert!(!dir.exists() && cleanup::mounts_below(&dir).is_empty());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn pod_runs_and_is_deleted() {
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    let script = "echo hello; trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
    let mut steps = Steps::new();
    let pod = steps
        .require("the pod runs", async {
            let run = [
                "run",
                "hello",
                "--image=polylet-test:1",
                "--",
                "sh",
                "-c",
                script,
            ];
            ok(cluster.kubectl(&run).await);
            let pod = ok(cluster.wait_pod_ready("hello").await);
            let status = &pod["status"];
            assert_eq!(status["phase"], "Running", "{status}");
            assert_eq!(status["qosClass"], "BestEffort", "{status}");
            assert_eq!(
                status["containerStatuses"][0]["restartCount"], 0,
                "{status}"
            );
            for address in ["podIP", "hostIP"] {
                assert!(status[address].is_string(), "no {address} in {status}");
            }
            for kind in [
                "PodScheduled",
                "PodReadyToStartContainers",
                "Initialized",
                "ContainersReady",
            ] {
                let condition = polylet_harness::cluster::condition(&pod, kind);
                assert_eq!(condition, Some("True"), "{kind} in {status}");
            }
            pod
        })
        .await;
    steps
        .run("the log is written", async {
            log_contains_hello(&node, &pod).await;
        })
        .await;
    steps
        .run("the pod is deleted with its resources", async {
            // kubectl waits until the object is gone, which happens after all resources of the pod are.
            ok(cluster.kubectl(&["delete", "pod", "hello"]).await);
            ok(cluster.wait_absent(&pod_path("hello")).await);
            let sandboxes = ok(node.containerd.cri().sandboxes().await);
            let running: Vec<_> = sandboxes
                .iter()
                .filter(|sandbox| sandbox.state == 0)
                .collect();
            assert!(running.is_empty(), "{running:?}");
            assert_eq!(node.mounts(), Vec::<std::path::PathBuf>::new());
        })
        .await;
    steps
        .run("no request was forbidden", async {
            nothing_forbidden(&cluster);
        })
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// The container's output is in the log file that log collectors read.
async fn log_contains_hello(node: &Node, pod: &Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let log = node
        .dirs()
        .logs
        .join(format!("default_hello_{uid}/hello/0.log"));
    let poll = || async {
        match fs::read_to_string(&log) {
            Ok(text) if text.contains("stdout F hello") => Poll::Ready(()),
            seen => Poll::Pending(format!("{seen:?}")),
        }
    };
    ok(until("the pod's log", poll).await);
}

/// No request of the node was forbidden.
fn nothing_forbidden(cluster: &Cluster) {
    let (requests, _) = ok(cluster.requests(0));
    let is_error = |code: u64| code >= 400 && ![404, 409, 410].contains(&code);
    let rejected: Vec<String> = requests
        .iter()
        .filter(|request| is_error(request.code))
        .map(polylet_harness::cluster::AuditEvent::line)
        .collect();
    assert!(rejected.is_empty(), "{rejected:#?}");
}
