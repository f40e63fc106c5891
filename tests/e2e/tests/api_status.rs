//! Writes to the API server: statuses, deletions, mirror pods and events, with a real control plane.

#[path = "api_status/mirror_pods.rs"]
mod mirror_pods;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{AuditEvent, Patch, condition, pod_path};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, PodView};
use polylet_wire::supervisor::v1::Span;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod that is already bound to this node.
fn bound(name: &str, script: &str, more: Value) -> Value {
    let mut pod: Value = serde_json::from_str(&pod(name, script, &more)).unwrap();
    pod["spec"]["nodeName"] = "node".into();
    pod
}

async fn create(cluster: &Cluster, pod: &Value) -> Value {
    ok(cluster.client().create(PODS, pod).await)
}

async fn delete(cluster: &Cluster, name: &str, options: Value) {
    ok(cluster.client().delete(&pod_path(name), &options).await);
}

async fn wait_deleted(cluster: &Cluster, name: &str) {
    ok(cluster.wait_absent(&pod_path(name)).await);
}

/// The node's requests for this pod, status patches included.
fn requests_for(cluster: &Cluster, since: u64, name: &str) -> Vec<AuditEvent> {
    let (all, _) = ok(cluster.requests(since));
    let of_pod =
        |request: &AuditEvent| request.resource.starts_with("pods") && request.name == name;
    all.into_iter().filter(of_pod).collect()
}

fn lines(requests: &[AuditEvent]) -> Vec<String> {
    requests.iter().map(AuditEvent::line).collect()
}

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn pod_statuses_are_patched() {
    let mut steps = Steps::new();
    let mut cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    steps
        .run(
            "pod starts and is deleted",
            pod_starts_and_is_deleted(&cluster, &node),
        )
        .await;
    steps
        .run(
            "terminal pods and readiness gates",
            terminal_pods_and_readiness_gates(&cluster),
        )
        .await;
    steps
        .run(
            "exits are reported at once",
            exits_are_reported_at_once(&cluster, &node),
        )
        .await;
    steps
        .run(
            "status drift is corrected",
            status_drift_is_corrected(&cluster),
        )
        .await;
    steps
        .run(
            "restarts write nothing",
            restarts_write_nothing(&cluster, &mut node),
        )
        .await;
    steps
        .run(
            "changes during an outage are reported",
            changes_during_an_outage_are_reported(&mut cluster, &node),
        )
        .await;
    steps
        .run(
            "pod deleted during node outage",
            pod_deleted_during_node_outage(&cluster, &mut node),
        )
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// A pod starts and is deleted, as `kubectl` shows it.
async fn pod_starts_and_is_deleted(cluster: &Cluster, node: &Node) {
    let made = create(cluster, &bound("web", RUNS, json!({}))).await;
    let ready = ok(cluster.wait_pod_ready("web").await);
    let status = &ready["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["observedGeneration"], made["metadata"]["generation"]);
    assert_eq!(status["podIP"], status["podIPs"][0]["ip"]);
    assert_eq!(status["hostIP"], status["hostIPs"][0]["ip"]);
    assert!(status["startTime"].is_string());
    for type_ in [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ] {
        assert_eq!(condition(&ready, type_), Some("True"), "{type_}");
    }
    let patches = requests_for(cluster, 0, "web");
    let (status_patches, other): (Vec<_>, Vec<_>) = patches
        .into_iter()
        .partition(|r| r.verb == "patch" && r.resource == "pods/status");
    assert!(
        (1..=2).contains(&status_patches.len()),
        "{:?}",
        lines(&status_patches)
    );
    assert!(
        other.is_empty(),
        "no other request precedes the patch: {:?}",
        lines(&other)
    );

    start_trace_ends_at_the_api_server(node, ready["metadata"]["uid"].as_str().unwrap()).await;
    ok(cluster
        .kubectl(&["wait", "--for=condition=Ready", "pod/web"])
        .await);
    let shown = ok(cluster
        .kubectl(&["get", "pod", "web", "--no-headers"])
        .await);
    assert!(
        shown.contains("1/1") && shown.contains("Running"),
        "{shown}"
    );

    ok(cluster.kubectl(&["delete", "pod", "web"]).await);
    wait_deleted(cluster, "web").await;
    let last = requests_for(cluster, 0, "web");
    let deletes: Vec<_> = last.iter().filter(|r| r.verb == "delete").collect();
    assert_eq!(deletes.len(), 1, "{:?}", lines(&last));
}

/// The trace of a start ends when the API server has accepted the Ready status.
async fn start_trace_ends_at_the_api_server(node: &Node, uid: &str) {
    let trace = ok(until("the trace of the start to be complete", || async {
        let ready = |span: &&Span| {
            span.attributes
                .get("polylet.result")
                .is_some_and(|r| r == "ready")
        };
        match node.trace(uid).await {
            Ok(trace) => {
                let mut ends = trace.spans.iter().filter(ready);
                match ends.find(|span| span.name == "status.patch") {
                    Some(_) => Poll::Ready(trace),
                    None => Poll::Pending(format!("{} spans", trace.spans.len())),
                }
            }
            Err(error) => Poll::Pending(error.to_string()),
        }
    })
    .await);
    let last = trace.spans.iter().max_by_key(|span| {
        let end = span.end.unwrap_or_default();
        (end.seconds, end.nanos)
    });
    assert_eq!(last.unwrap().name, "status.patch", "{:?}", trace.spans);
    assert!(trace.spans.iter().any(|span| span.service == "pod-config"));
}

/// Pods that terminate by themselves, and one with a readiness gate.
async fn terminal_pods_and_readiness_gates(cluster: &Cluster) {
    let once = |name, script| bound(name, script, json!({ "restartPolicy": "Never" }));
    create(cluster, &once("done", "exit 0")).await;
    create(cluster, &once("failed", "exit 3")).await;
    let gate = json!({ "readinessGates": [{ "conditionType": "example.com/open" }] });
    create(cluster, &bound("gated", RUNS, gate)).await;

    let phase = |phase: &'static str| move |pod: &Value| pod["status"]["phase"] == phase;
    let done = ok(cluster
        .wait(&pod_path("done"), "to succeed", phase("Succeeded"))
        .await);
    assert_eq!(condition(&done, "Ready"), Some("False"));
    let failed = ok(cluster
        .wait(&pod_path("failed"), "to fail", phase("Failed"))
        .await);
    let ended = &failed["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 3, "{failed}");

    let closed = |pod: &Value| condition(pod, "ContainersReady") == Some("True");
    let gated = ok(cluster.wait(&pod_path("gated"), "to run", closed).await);
    assert_eq!(condition(&gated, "Ready"), Some("False"));
    let open =
        json!({ "status": { "conditions": [{ "type": "example.com/open", "status": "True" }] } });
    let at = format!("{}/status", pod_path("gated"));
    ok(cluster.client().patch(&at, Patch::Strategic, &open).await);
    let gated = ok(cluster.wait_pod_ready("gated").await);
    assert_eq!(condition(&gated, "example.com/open"), Some("True"));

    // A forced deletion: the object is gone at once, the containers follow.
    let now = json!({ "gracePeriodSeconds": 0 });
    for name in ["done", "failed", "gated"] {
        delete(cluster, name, now.clone()).await;
        wait_deleted(cluster, name).await;
    }
}

/// Time from the exit of a container to the watch event.
async fn exits_are_reported_at_once(cluster: &Cluster, node: &Node) {
    let shared = node.scratch().join("shared");
    fs::create_dir_all(&shared).unwrap();
    let mut took = Vec::new();
    for round in 0..5 {
        let go = shared.join(format!("go-{round}"));
        fifo(&go);
        let name = format!("go-{round}");
        create(cluster, &pod_waiting_for_fifo(&shared, &name)).await;
        ok(cluster.wait_pod_ready(&name).await);
        let all = format!("{PODS}?fieldSelector=metadata.name={name}");
        let mut watch = ok(cluster.client().watch(&all).await);
        let started = Instant::now();
        fs::write(&go, "go\n").unwrap();
        loop {
            let (_, seen) = ok(watch.next().await).expect("an event");
            if seen["status"]["containerStatuses"][0]["state"]["terminated"].is_object() {
                break;
            }
        }
        took.push(started.elapsed());
        delete(cluster, &name, json!({ "gracePeriodSeconds": 0 })).await;
    }
    took.sort();
    let floor = api_server_latency(cluster).await;
    println!("exit to event: {took:?}; a patch to its event: {floor:?}");
    assert!(
        took[2] < floor + Duration::from_millis(250),
        "{took:?}, floor {floor:?}"
    );
}

/// A pod that exits when its FIFO is written to.
fn pod_waiting_for_fifo(shared: &Path, name: &str) -> Value {
    let more = json!({
        "restartPolicy": "Never",
        "container": { "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }] },
        "volumes": [{ "name": "shared", "hostPath": { "path": shared } }],
    });
    bound(name, &format!("read x < /shared/{name}; exit 7"), more)
}

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// The API server's own time from a patch to the watch event.
async fn api_server_latency(cluster: &Cluster) -> Duration {
    create(cluster, &bound("floor", RUNS, json!({}))).await;
    ok(cluster.wait_pod_ready("floor").await);
    let all = format!("{PODS}?fieldSelector=metadata.name=floor");
    let mut watch = ok(cluster.client().watch(&all).await);
    let mut took = Vec::new();
    let path = pod_path("floor");
    for round in 0..5 {
        let started = Instant::now();
        let mark = format!("round-{round}");
        let label = json!({ "metadata": { "labels": { "round": mark } } });
        let patched = cluster.client().patch(&path, Patch::Merge, &label);
        let seen = async {
            loop {
                let (_, pod) = ok(watch.next().await).expect("an event");
                if pod["metadata"]["labels"]["round"] == mark {
                    return;
                }
            }
        };
        let (patched, ()) = tokio::join!(patched, seen);
        ok(patched);
        took.push(started.elapsed());
    }
    took.sort();
    took[2]
}

/// Another client overwrites the status.
async fn status_drift_is_corrected(cluster: &Cluster) {
    let before = ok(cluster.wait_pod_ready("floor").await);
    let at = format!("{}/status", pod_path("floor"));
    let forged = json!({ "status": { "podIP": "192.0.2.200", "podIPs": [{ "ip": "192.0.2.200" }, { "$patch": "replace" }] } });
    ok(cluster.client().patch(&at, Patch::Strategic, &forged).await);
    let ip = before["status"]["podIP"].clone();
    let right = |pod: &Value| {
        pod["status"]["podIP"] == ip && pod["status"]["podIPs"].as_array().unwrap().len() == 1
    };
    ok(cluster
        .wait(&pod_path("floor"), "to have its status restored", right)
        .await);
}

/// A restart without changes causes no write.
async fn restarts_write_nothing(cluster: &Cluster, node: &mut Node) {
    create(cluster, &bound("stays", RUNS, json!({}))).await;
    ok(cluster.wait_pod_ready("stays").await);
    // Events are sent with a delay.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, mark) = ok(cluster.requests(0));
    for service in ["status-reporter", "pod-config", "sync-coordinator"] {
        ok(node.kill(service).await);
        ok(node.wait_in_step().await);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (since, _) = ok(cluster.requests(mark));
    let changes: Vec<_> = since
        .iter()
        .filter(|r| ["patch", "create", "delete", "update"].contains(&r.verb.as_str()))
        .filter(|r| r.resource.starts_with("pods") || r.resource == "events")
        .collect();
    assert!(changes.is_empty(), "{changes:?}");
}

/// Changes during an API server outage are reported after it.
async fn changes_during_an_outage_are_reported(cluster: &mut Cluster, node: &Node) {
    let (name, go) = ("meanwhile", node.scratch().join("shared/meanwhile"));
    fifo(&go);
    let waits = pod_waiting_for_fifo(&node.scratch().join("shared"), "meanwhile");
    create(cluster, &waits).await;
    ok(cluster.wait_pod_ready(name).await);
    cluster.stop_api();
    fs::write(&go, "go\n").unwrap();
    let ended = |pod: &PodView| pod.name == "meanwhile" && pod.phase() == "Failed";
    ok(until("the pod to end", || async {
        match node.pods().await {
            Ok(pods) if pods.iter().any(ended) => Poll::Ready(()),
            Ok(pods) => Poll::Pending(pods.iter().map(PodView::line).collect()),
            Err(error) => Poll::Pending(error.to_string()),
        }
    })
    .await);
    ok(cluster.start_api().await);
    let back = Instant::now();
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    ok(cluster.wait(&pod_path(name), "to fail", failed).await);
    println!(
        "status in the API {:?} after the server was back",
        back.elapsed()
    );
    delete(cluster, name, Value::Null).await;
    wait_deleted(cluster, name).await;
}

/// A pod that is deleted while the node is down is cleaned up when it is up again.
async fn pod_deleted_during_node_outage(cluster: &Cluster, node: &mut Node) {
    node.down();
    create(cluster, &bound("unborn", RUNS, json!({}))).await;
    delete(cluster, "unborn", Value::Null).await;
    delete(cluster, "stays", Value::Null).await;
    delete(cluster, "floor", json!({ "gracePeriodSeconds": 0 })).await;
    wait_deleted(cluster, "floor").await;
    ok(node.up().await);
    wait_deleted(cluster, "stays").await;
    ok(until("the node to have no pod", || async {
        match node.pods().await {
            Ok(pods) if pods.is_empty() => Poll::Ready(()),
            Ok(pods) => Poll::Pending(format!("{} pods", pods.len())),
            Err(error) => Poll::Pending(error.to_string()),
        }
    })
    .await);
}
