//! Takeover of a node: from the real kubelet to Polylet, back, and to Polylet again, on the same
//! directories, without disturbing pods.

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

const PODS: [&str; 3] = ["plain", "volumes", "sidecar"];
/// The mirror pods of static pods, whose uids are generated: the first by the kubelet, the other one by
/// Polylet.
const STATIC: [&str; 2] = ["etcd-node", "web-node"];

#[tokio::test]
#[ignore = "needs root, a container runtime, the programs of a cluster: cargo verify"]
async fn takeover_between_the_kubelet_and_polylet() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let options = ok(cluster.node_options("node"));
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));
    ok(kubelet.start());
    ok(cluster.wait_node_ready("node").await);
    steps.run("objects", objects(&cluster)).await;
    for (name, more) in PODS.iter().zip([json!({}), volumes(), sidecar()]) {
        create(&cluster, name, &more).await;
    }
    ok(node.put("etcd.json", &pod("etcd", RUNS, &json!({}))));
    for name in at_first() {
        ok(cluster.wait_pod_ready(name).await);
    }
    let before = identities(&cluster, at_first()).await;
    let unready = Unready::watch(&cluster).await;

    kubelet.stop(false);
    ok(node.up().await);
    steps
        .run(
            "agent has synced",
            agent_has_synced(&cluster, "under-polylet"),
        )
        .await;
    let after = identities(&cluster, at_first()).await;
    assert_eq!(after, before, "Polylet took over");
    unready.never();

    ok(node.put("web.json", &pod("web", RUNS, &of_control_plane())));
    ok(cluster.wait_pod_ready(STATIC[1]).await);
    let before = identities(&cluster, all()).await;
    node.down();
    ok(kubelet.start());
    steps
        .run(
            "agent has synced",
            agent_has_synced(&cluster, "under-the-kubelet"),
        )
        .await;
    let after = identities(&cluster, all()).await;
    assert_eq!(
        comparable(&after),
        comparable(&before),
        "the kubelet took over"
    );

    kubelet.stop(false);
    ok(node.up().await);
    steps
        .run("agent has synced", agent_has_synced(&cluster, "again"))
        .await;
    let again = identities(&cluster, all()).await;
    assert_eq!(again, after, "Polylet took over again");

    for name in PODS {
        ok(cluster.client().delete(&pod_path(name), &Value::Null).await);
    }
    for file in ["etcd.json", "web.json"] {
        ok(node.take(file));
    }
    for name in all() {
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    node.down();
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

fn all() -> impl Iterator<Item = &'static str> {
    PODS.into_iter().chain(STATIC)
}

/// The pods before there is one that Polylet has started.
fn at_first() -> impl Iterator<Item = &'static str> {
    PODS.into_iter().chain([STATIC[0]])
}

/// The lines that a kubelet leaves as they are. It also treats a probed container as unready after its
/// own restart, until the first probe, and gives the conditions of a static pod new times.
fn comparable(lines: &[String]) -> Vec<String> {
    let probed = |line: &&String| !line.starts_with("plain") && line.contains("Ready\"");
    let of_static = |line: &&String| {
        STATIC.iter().any(|name| line.starts_with(name)) && line.contains("\"True\"")
    };
    let differs = |line: &&String| probed(line) || of_static(line);
    let kept = lines.iter().filter(|line| !differs(line));
    kept.cloned().collect()
}

/// Fields of a static pod as those of a control plane have them, so that its uid is of more than names.
fn of_control_plane() -> Value {
    json!({
        "hostNetwork": true,
        "priorityClassName": "system-node-critical",
        "priority": 2_000_001_000,
        "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
        "volumes": [{ "name": "data", "hostPath": { "path": "/tmp", "type": "Directory" } }],
        "container": {
            "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": true }],
            "resources": { "requests": { "cpu": "10m", "memory": "1.5Mi" } },
            "livenessProbe": { "exec": { "command": ["true"] }, "failureThreshold": 8 },
        },
    })
}

/// A new pod becomes Ready and is deleted, which shows that the agent has synced.
async fn agent_has_synced(cluster: &Cluster, name: &str) {
    create(cluster, name, &json!({})).await;
    ok(cluster.wait_pod_ready(name).await);
    ok(cluster.client().delete(&pod_path(name), &Value::Null).await);
    ok(cluster.wait_absent(&pod_path(name)).await);
}

/// Statuses with a pod that was not Ready, as any API client observes them.
struct Unready(tokio::sync::mpsc::UnboundedReceiver<String>);

impl Unready {
    async fn watch(cluster: &Cluster) -> Self {
        let path = "/api/v1/namespaces/default/pods";
        let mut watch = ok(cluster.client().watch(path).await);
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some((_, pod))) = watch.next().await {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let ending = pod["metadata"]["deletionTimestamp"].is_string();
                if all().any(|one| one == name) && !ending && !is_ready(&pod) {
                    let _ = sender.send(format!("{name}: {}", pod["status"]));
                }
            }
        });
        Self(receiver)
    }

    fn never(mut self) {
        if let Ok(seen) = self.0.try_recv() {
            panic!("a pod was not Ready: {seen}");
        }
    }
}

async fn objects(cluster: &Cluster) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": "value" },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "stringData": { "user": "me" },
    });
    for (kind, object) in [("configmaps", map), ("secrets", secret)] {
        let path = format!("/api/v1/namespaces/default/{kind}");
        ok(cluster.client().create(&path, &object).await);
    }
}

/// Volumes of the pods besides the service account token.
fn volumes() -> Value {
    json!({
        "volumes": [
            { "name": "map", "configMap": { "name": "settings" } },
            { "name": "secret", "secret": { "secretName": "login" } },
            { "name": "scratch", "emptyDir": {} },
        ],
        "container": {
            "volumeMounts": [
                { "name": "map", "mountPath": "/map" },
                { "name": "secret", "mountPath": "/secret" },
                { "name": "scratch", "mountPath": "/scratch" },
            ],
            "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1 },
        },
    })
}

fn sidecar() -> Value {
    json!({ "initContainers": [{
        "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
        "command": ["sh", "-c", RUNS],
        "startupProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1 },
    }] })
}

async fn create(cluster: &Cluster, name: &str, more: &Value) {
    let object: Value = serde_json::from_str(&pod(name, RUNS, more)).unwrap();
    let path = "/api/v1/namespaces/default/pods";
    ok(cluster.client().create(path, &object).await);
}

/// Container ids, restart counts, and the transition time of Ready.
async fn identities(cluster: &Cluster, names: impl Iterator<Item = &'static str>) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        let pod = ok(cluster.client().get(&pod_path(name)).await).unwrap();
        let status = &pod["status"];
        all.push(format!("{name} {}", pod["metadata"]["uid"]));
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status[list].as_array().into_iter().flatten() {
                let (id, restarts) = (&container["containerID"], &container["restartCount"]);
                all.push(format!("{name} {id} {restarts}"));
            }
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        for condition in conditions {
            let (kind, since) = (&condition["type"], &condition["lastTransitionTime"]);
            all.push(format!("{name} {kind} {} {since}", condition["status"]));
        }
    }
    all
}
