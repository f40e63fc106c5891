//! A node of a real cluster: kube-apiserver, scheduler and controllers as they are, and Polylet
//! where the kubelet would be.

use std::fs;

use polylet_e2e::{cluster, cluster_node, ok};
use polylet_harness::cluster::pod_path;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node, cleanup, procs};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root and the programs of a cluster: cargo verify"]
async fn a_control_plane_comes_up_and_leaves_nothing_behind() {
    let mut cluster = cluster().await;
    for (step, took) in &cluster.took {
        println!("{step}: {} ms", took.as_millis());
    }
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
    let kept = ok(cluster.client().get(&format!("{maps}/kept")).await).unwrap();
    assert_eq!(kept["data"]["key"], "value");
    let told = ok(cluster.kubectl(&["get", "namespaces", "-o", "name"]).await);
    assert!(told.contains("namespace/made"), "{told}");

    // What a node's certificate may do, and that its requests are counted.
    let kubeconfig = ok(cluster.node_kubeconfig("someone"));
    let own = "--field-selector=spec.nodeName=someone";
    ok(cluster
        .kubectl_as(&kubeconfig, &["get", "pods", "-A", own])
        .await);
    let all = cluster.kubectl_as(&kubeconfig, &["get", "secrets", "-A"]);
    assert!(all.await.is_err(), "a node may not read all secrets");
    let (requests, _) = ok(cluster.requests(0));
    let lines: Vec<_> = requests.iter().map(|request| request.line()).collect();
    assert_eq!(lines.last().unwrap(), "list secrets / 403", "{lines:?}");

    let dir = cluster.scratch().to_owned();
    assert_eq!(procs::of_run(&dir).len(), 4);
    ok(cluster.remove());
    assert_eq!(procs::of_run(&dir).len(), 0);
    assert!(!dir.exists() && cleanup::mounts_below(&dir).is_empty());
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster: cargo verify"]
async fn a_pod_from_run_to_delete() {
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    let script = "echo hello; trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
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
    said_hello(&node, &pod).await;

    // kubectl waits until the object is gone, which is when nothing of the pod is left.
    ok(cluster.kubectl(&["delete", "pod", "hello"]).await);
    ok(cluster.wait_absent(&pod_path("hello")).await);
    let sandboxes = ok(node.containerd.cri().sandboxes().await);
    let held: Vec<_> = sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == 0)
        .collect();
    assert!(held.is_empty(), "{held:?}");
    assert_eq!(node.mounts(), Vec::<std::path::PathBuf>::new());
    nothing_forbidden(&cluster);
    ok(node.remove());
    ok(cluster.remove());
}

/// What the container wrote is in the file where collectors of logs look.
async fn said_hello(node: &Node, pod: &Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let log = node
        .dirs()
        .logs
        .join(format!("default_hello_{uid}/hello/0.log"));
    let look = || async {
        match fs::read_to_string(&log) {
            Ok(text) if text.contains("stdout F hello") => Look::Done(()),
            seen => Look::NotYet(format!("{seen:?}")),
        }
    };
    ok(until("the pod's log", look).await);
}

/// A node that asks for what it may not have would be wrong in every cluster.
fn nothing_forbidden(cluster: &Cluster) {
    let (requests, _) = ok(cluster.requests(0));
    let wrong = |code: u64| code >= 400 && ![404, 409, 410].contains(&code);
    let refused: Vec<String> = requests
        .iter()
        .filter(|request| wrong(request.code))
        .map(polylet_harness::cluster::Audited::line)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
