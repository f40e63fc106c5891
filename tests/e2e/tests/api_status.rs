//! What the cluster is told: statuses, removals, mirrors and events, with the real control plane.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{Audited, Patch, condition, pod_path};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Cluster, Node, PodView};
use polylet_wire::supervisor::v1::Span;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod for this node, as somebody else's scheduler would have bound it.
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

async fn gone(cluster: &Cluster, name: &str) {
    ok(cluster.wait_absent(&pod_path(name)).await);
}

/// What the node has asked of this pod, its status among it.
fn asked(cluster: &Cluster, since: u64, name: &str) -> Vec<Audited> {
    let (all, _) = ok(cluster.requests(since));
    let of_pod = |request: &Audited| request.resource.starts_with("pods") && request.name == name;
    all.into_iter().filter(of_pod).collect()
}

fn lines(requests: &[Audited]) -> Vec<String> {
    requests.iter().map(Audited::line).collect()
}

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn pods_are_told_to_the_cluster() {
    let mut cluster = cluster().await;
    let mut node = cluster_node(&cluster).await;
    a_start_and_an_end(&cluster, &node).await;
    ends_and_gates(&cluster).await;
    exits_are_seen_at_once(&cluster, &node).await;
    drift(&cluster).await;
    restarts_say_nothing(&cluster, &mut node).await;
    the_server_is_away(&mut cluster, &node).await;
    the_node_is_away(&cluster, &mut node).await;
    ok(node.remove());
    ok(cluster.remove());
}

/// A pod comes and goes, as `kubectl` shows it.
async fn a_start_and_an_end(cluster: &Cluster, node: &Node) {
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
    let patches = asked(cluster, 0, "web");
    let (told, other): (Vec<_>, Vec<_>) = patches
        .into_iter()
        .partition(|r| r.verb == "patch" && r.resource == "pods/status");
    assert!((1..=2).contains(&told.len()), "{:?}", lines(&told));
    assert!(
        other.is_empty(),
        "nothing is asked first: {:?}",
        lines(&other)
    );

    traced(node, ready["metadata"]["uid"].as_str().unwrap()).await;
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
    gone(cluster, "web").await;
    let last = asked(cluster, 0, "web");
    let deletes: Vec<_> = last.iter().filter(|r| r.verb == "delete").collect();
    assert_eq!(deletes.len(), 1, "{:?}", lines(&last));
}

/// The trace of the start ends when the API server has taken that the pod is ready.
async fn traced(node: &Node, uid: &str) {
    let trace = ok(until("the start's trace to be whole", || async {
        let ready = |span: &&Span| span.attributes.get("result").is_some_and(|r| r == "ready");
        match node.trace(uid).await {
            Ok(trace) => {
                let mut ends = trace.spans.iter().filter(ready);
                match ends.find(|span| span.name == "status.patch") {
                    Some(_) => Look::Done(trace),
                    None => Look::NotYet(format!("{} spans", trace.spans.len())),
                }
            }
            Err(error) => Look::NotYet(error.to_string()),
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

/// Pods that end by themselves, and one that waits for what others say of it.
async fn ends_and_gates(cluster: &Cluster) {
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

    // Whoever has no time to wait: the object goes at once, the containers after it.
    let now = json!({ "gracePeriodSeconds": 0 });
    for name in ["done", "failed", "gated"] {
        delete(cluster, name, now.clone()).await;
        gone(cluster, name).await;
    }
}

/// From the exit of a container to the event at a client.
async fn exits_are_seen_at_once(cluster: &Cluster, node: &Node) {
    let shared = node.scratch().join("shared");
    fs::create_dir_all(&shared).unwrap();
    let mut took = Vec::new();
    for round in 0..5 {
        let go = shared.join(format!("go-{round}"));
        fifo(&go);
        let name = format!("go-{round}");
        create(cluster, &waits(&shared, &name)).await;
        ok(cluster.wait_pod_ready(&name).await);
        let all = format!("{PODS}?fieldSelector=metadata.name={name}");
        let mut watch = ok(cluster.client().watch(&all).await);
        let begun = Instant::now();
        fs::write(&go, "go\n").unwrap();
        loop {
            let (_, seen) = ok(watch.next().await).expect("an event");
            if seen["status"]["containerStatuses"][0]["state"]["terminated"].is_object() {
                break;
            }
        }
        took.push(begun.elapsed());
        delete(cluster, &name, json!({ "gracePeriodSeconds": 0 })).await;
    }
    took.sort();
    let floor = floor(cluster).await;
    println!("exit to event: {took:?}; a patch to its event: {floor:?}");
    assert!(
        took[2] < floor + Duration::from_millis(250),
        "{took:?}, floor {floor:?}"
    );
}

/// A pod that ends when something is written to the pipe of its name.
fn waits(shared: &Path, name: &str) -> Value {
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

/// What the API server itself takes from a patch to the event.
async fn floor(cluster: &Cluster) -> Duration {
    create(cluster, &bound("floor", RUNS, json!({}))).await;
    ok(cluster.wait_pod_ready("floor").await);
    let all = format!("{PODS}?fieldSelector=metadata.name=floor");
    let mut watch = ok(cluster.client().watch(&all).await);
    let mut took = Vec::new();
    let path = pod_path("floor");
    for round in 0..5 {
        let begun = Instant::now();
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
        took.push(begun.elapsed());
    }
    took.sort();
    took[2]
}

/// Somebody writes what is ours to write.
async fn drift(cluster: &Cluster) {
    let before = ok(cluster.wait_pod_ready("floor").await);
    let at = format!("{}/status", pod_path("floor"));
    let wrong = json!({ "status": { "podIP": "192.0.2.200", "podIPs": [{ "ip": "192.0.2.200" }, { "$patch": "replace" }] } });
    ok(cluster.client().patch(&at, Patch::Strategic, &wrong).await);
    let ip = before["status"]["podIP"].clone();
    let right = |pod: &Value| {
        pod["status"]["podIP"] == ip && pod["status"]["podIPs"].as_array().unwrap().len() == 1
    };
    ok(cluster
        .wait(&pod_path("floor"), "to be set right", right)
        .await);
}

/// After a restart with nothing changed there is nothing to say.
async fn restarts_say_nothing(cluster: &Cluster, node: &mut Node) {
    create(cluster, &bound("stays", RUNS, json!({}))).await;
    ok(cluster.wait_pod_ready("stays").await);
    // Events are told after the fact.
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

/// What happens while the API server is away is told when it is back.
async fn the_server_is_away(cluster: &mut Cluster, node: &Node) {
    let (name, go) = ("meanwhile", node.scratch().join("shared/meanwhile"));
    fifo(&go);
    let waits = waits(&node.scratch().join("shared"), "meanwhile");
    create(cluster, &waits).await;
    ok(cluster.wait_pod_ready(name).await);
    cluster.stop_api();
    fs::write(&go, "go\n").unwrap();
    let ended = |pod: &PodView| pod.name == "meanwhile" && pod.phase() == "Failed";
    ok(until("the pod to end", || async {
        match node.pods().await {
            Ok(pods) if pods.iter().any(ended) => Look::Done(()),
            Ok(pods) => Look::NotYet(pods.iter().map(PodView::line).collect()),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await);
    ok(cluster.start_api().await);
    let back = Instant::now();
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    ok(cluster.wait(&pod_path(name), "to fail", failed).await);
    println!("told {:?} after the server was back", back.elapsed());
    delete(cluster, name, Value::Null).await;
    gone(cluster, name).await;
}

/// The node is away while its pod is deleted, and cleans up when it is back.
async fn the_node_is_away(cluster: &Cluster, node: &mut Node) {
    node.down();
    create(cluster, &bound("unborn", RUNS, json!({}))).await;
    delete(cluster, "unborn", Value::Null).await;
    delete(cluster, "stays", Value::Null).await;
    delete(cluster, "floor", json!({ "gracePeriodSeconds": 0 })).await;
    gone(cluster, "floor").await;
    ok(node.up().await);
    gone(cluster, "stays").await;
    ok(until("the node to hold no pod", || async {
        match node.pods().await {
            Ok(pods) if pods.is_empty() => Look::Done(()),
            Ok(pods) => Look::NotYet(format!("{} pods", pods.len())),
            Err(error) => Look::NotYet(error.to_string()),
        }
    })
    .await);
}

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn static_pods_have_mirrors_and_people_have_events() {
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    mirrors(&cluster, &node).await;
    events(&cluster).await;
    ok(node.remove());
    ok(cluster.remove());
}

async fn mirrors(cluster: &Cluster, node: &Node) {
    ok(node.put("still.json", &pod("still", RUNS, &json!({}))));
    let mirror = ok(cluster.wait_pod_ready("still-node").await);
    let annotations = &mirror["metadata"]["annotations"];
    let hash = annotations["kubernetes.io/config.hash"].clone();
    assert_eq!(annotations["kubernetes.io/config.mirror"], hash);
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(annotations["kubernetes.io/config.seen"].is_string());
    let owner = &mirror["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("Node"), &json!(true))
    );
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let runs = container(&mirror);

    // Removed by hand: it comes back, and nothing happens to the pod.
    ok(cluster
        .kubectl(&["delete", "pod", "still-node", "--wait=false"])
        .await);
    let other = |pod: &Value| pod["metadata"]["uid"] != mirror["metadata"]["uid"];
    let path = pod_path("still-node");
    ok(cluster.wait(&path, "to come back", other).await);
    let again = ok(cluster.wait_pod_ready("still-node").await);
    assert_eq!(container(&again), runs);

    // Edited: the mirror of the new one takes the place of the old one's.
    ok(node.put("still.json", &pod("still", RUNS, &json!({ "priority": 0 }))));
    let edited = |pod: &Value| {
        let now = &pod["metadata"]["annotations"]["kubernetes.io/config.mirror"];
        *now != hash && condition(pod, "Ready") == Some("True")
    };
    ok(cluster.wait(&path, "to be the new one's", edited).await);

    ok(node.take("still.json"));
    gone(cluster, "still-node").await;
    ok(node.wait_gone("still").await);
}

async fn events(cluster: &Cluster) {
    let probe = json!({
        "container": { "readinessProbe": { "exec": { "command": ["sh", "-c", "echo no; exit 1"] }, "periodSeconds": 1 } },
    });
    create(cluster, &bound("sick", RUNS, probe)).await;
    let about = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=sick";
    let reason = |list: &Value, reason: &str| {
        let items = list["items"].as_array();
        let mut found = items
            .into_iter()
            .flatten()
            .filter(|e| e["reason"] == reason);
        found.next().cloned()
    };
    let counted =
        |list: &Value| reason(list, "Unhealthy").is_some_and(|e| e["count"].as_u64() >= Some(2));
    let list = ok(cluster.wait(about, "to count", counted).await);
    let unhealthy = reason(&list, "Unhealthy").unwrap();
    assert_eq!(unhealthy["type"], "Warning");
    assert_eq!(
        unhealthy["source"],
        json!({ "component": "kubelet", "host": "node" })
    );
    assert_eq!(
        unhealthy["involvedObject"]["fieldPath"],
        "spec.containers{main}"
    );
    let message = unhealthy["message"].as_str().unwrap();
    assert!(
        message.starts_with("Readiness probe failed: no"),
        "{message}"
    );
    let described = ok(cluster.kubectl(&["describe", "pod", "sick"]).await);
    assert!(described.contains("Unhealthy"), "{described}");
    for told in ["Created", "Started"] {
        assert!(described.contains(told), "{told}: {described}");
    }
    delete(cluster, "sick", Value::Null).await;
    gone(cluster, "sick").await;
}
