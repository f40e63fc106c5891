//! Lifecycle of API pods with a real control plane: missing objects, resize, ephemeral containers,
//! rejection, and their events.

use std::fs;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, cluster_node, ok, pod};
use polylet_harness::cluster::{Patch, condition, pod_path};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node, cgroup};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn api_pod_lifecycle() {
    let mut steps = Steps::new();
    let cluster = cluster().await;
    let node = cluster_node(&cluster).await;
    steps
        .run(
            "missing config map is waited for",
            missing_config_map_is_waited_for(&cluster, &node),
        )
        .await;
    steps
        .run("containers are resized", containers_are_resized(&cluster))
        .await;
    steps
        .run("pod is resized", pod_is_resized(&cluster, &node))
        .await;
    steps
        .run(
            "ephemeral container is started",
            ephemeral_container_is_started(&cluster),
        )
        .await;
    steps
        .run(
            "mismatched pod is rejected",
            mismatched_pod_is_rejected(&cluster),
        )
        .await;
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

async fn create(cluster: &Cluster, name: &str, script: &str, more: Value) -> Value {
    let mut pod: Value = serde_json::from_str(&pod(name, script, &more)).unwrap();
    pod["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(PODS, &pod).await)
}

async fn delete(cluster: &Cluster, name: &str) {
    let path = pod_path(name);
    ok(cluster.client().delete(&path, &json!({})).await);
    ok(cluster.wait_absent(&path).await);
}

fn main_status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Waits for events with these reasons.
async fn wait_for_events(cluster: &Cluster, name: &str, reasons: &[&str]) -> Vec<Value> {
    let object =
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
    ok(until("the event about the pod", || async {
        let events = cluster.client().get(&object).await.ok().flatten();
        let events = events.and_then(|all| all["items"].as_array().cloned());
        let events = events.unwrap_or_default();
        let has = |reason: &&str| events.iter().any(|event| event["reason"] == **reason);
        match reasons.iter().find(|reason| !has(reason)) {
            Some(reason) => Poll::Pending(format!("no {reason} of {name}")),
            None => Poll::Ready(events),
        }
    })
    .await)
}

/// A container waits for its ConfigMap with upstream's message and starts once it exists; it gets
/// the environment variables of Services.
async fn missing_config_map_is_waited_for(cluster: &Cluster, node: &Node) {
    let shared = node.scratch().join("shared");
    fs::create_dir_all(&shared).unwrap();
    let script = format!("echo $KUBERNETES_SERVICE_PORT $LATE > /shared/seen; {RUNS}");
    let more = json!({
        "container": {
            "env": [{"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}],
            "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
        },
        "volumes": [{ "name": "shared", "hostPath": { "path": shared } }],
    });
    create(cluster, "waits", &script, more).await;
    let waits = |pod: &Value| {
        main_status(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    };
    let path = pod_path("waits");
    let waiting = ok(cluster.wait(&path, "to wait", waits).await);
    let message = &main_status(&waiting)["state"]["waiting"]["message"];
    assert_eq!(message, "configmap \"late\" not found");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"},
        "data": {"k": "value"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let start = std::time::Instant::now();
    ok(cluster.client().create(maps, &map).await);
    ok(cluster.wait_pod_ready("waits").await);
    println!("ConfigMap to Ready: {:?}", start.elapsed());
    let output = fs::read_to_string(shared.join("seen")).unwrap();
    assert_eq!(output.trim(), "443 value");
    delete(cluster, "waits").await;
    let events = wait_for_events(
        cluster,
        "waits",
        &["Pulled", "Created", "Started", "Failed", "Killing"],
    )
    .await;
    let started = events.iter().filter(|event| event["reason"] == "Started");
    let started: Vec<_> = started.collect();
    assert_eq!(started.len(), 1);
    let object = &started[0]["involvedObject"]["fieldPath"];
    assert_eq!(object, "spec.containers{main}");
    assert_eq!(started[0]["message"], "Container started");
}

fn sized(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

async fn resize(cluster: &Cluster, resources: Value) {
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
    let path = format!("{}/resize", pod_path("sized"));
    ok(cluster
        .client()
        .patch(&path, Patch::Strategic, &patch)
        .await);
}

/// CPU is resized in place, memory by a restart; a resize that does not fit is deferred.
async fn containers_are_resized(cluster: &Cluster) {
    let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let container = json!({"resources": sized("100m", "64Mi"), "resizePolicy": policy});
    create(cluster, "sized", RUNS, json!({ "container": container })).await;
    let first = ok(cluster.wait_pod_ready("sized").await);
    let has = |cpu: &'static str, memory: &'static str| {
        move |pod: &Value| {
            let limits = &main_status(pod)["resources"]["limits"];
            limits["cpu"] == cpu
                && limits["memory"] == memory
                && main_status(pod)["allocatedResources"]["cpu"] == cpu
                && condition(pod, "PodResizeInProgress").is_none()
                && condition(pod, "PodResizePending").is_none()
        }
    };
    let path = pod_path("sized");
    resize(cluster, sized("200m", "64Mi")).await;
    let grown = ok(cluster.wait(&path, "more CPU", has("200m", "64Mi")).await);
    assert_eq!(
        main_status(&grown)["containerID"],
        main_status(&first)["containerID"]
    );
    assert_eq!(main_status(&grown)["restartCount"], 0);
    resize(cluster, sized("150m", "96Mi")).await;
    let restarted =
        |pod: &Value| has("150m", "96Mi")(pod) && main_status(pod)["state"]["running"].is_object();
    let restarted_pod = ok(cluster.wait(&path, "more memory", restarted).await);
    assert_eq!(main_status(&restarted_pod)["restartCount"], 1);
    // Deferred until the other pod's CPU is free.
    let one = json!({"resources": {"requests": {"cpu": "1"}}});
    create(cluster, "other", RUNS, json!({ "container": one })).await;
    ok(cluster.wait_pod_ready("other").await);
    resize(cluster, sized("1500m", "96Mi")).await;
    let deferred = |pod: &Value| condition(pod, "PodResizePending") == Some("True");
    let deferred = ok(cluster.wait(&path, "to be deferred", deferred).await);
    let conditions = deferred["status"]["conditions"].as_array().unwrap();
    let pending = conditions.iter().find(|c| c["type"] == "PodResizePending");
    assert_eq!(pending.unwrap()["reason"], "Deferred", "{deferred}");
    delete(cluster, "other").await;
    ok(cluster.wait(&path, "its turn", has("1500m", "96Mi")).await);
    delete(cluster, "sized").await;
    let reasons = ["ResizeStarted", "ResizeCompleted", "ResizeDeferred"];
    wait_for_events(cluster, "sized", &reasons).await;
}

/// Pod-level resources are resized in place.
async fn pod_is_resized(cluster: &Cluster, node: &Node) {
    let sizes = |cpu: &str, memory: &str| {
        json!({"requests": {"cpu": "100m", "memory": "32Mi"},
            "limits": {"cpu": cpu, "memory": memory}})
    };
    let resources = json!({ "resources": sizes("300m", "64Mi") });
    create(cluster, "whole", RUNS, resources).await;
    let first = ok(cluster.wait_pod_ready("whole").await);
    let id = main_status(&first)["containerID"].as_str().unwrap();
    let pod = format!(
        "{}/kubepods/burstable/pod{}",
        node.cgroup(),
        first["metadata"]["uid"].as_str().unwrap()
    );
    let container_cgroup = format!("{pod}/{}", id.trim_start_matches("containerd://"));
    let quota = |path: &str| {
        let file = match cgroup::is_v2() {
            true => format!("/sys/fs/cgroup{path}/cpu.max"),
            false => format!("/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us"),
        };
        let text = fs::read_to_string(file).unwrap();
        text.split_whitespace().next().unwrap().to_owned()
    };
    // With the systemd driver the paths differ, the values do not.
    let plain = cgroup::TestCgroupDriver::from_env() == cgroup::TestCgroupDriver::Cgroupfs;
    let both = || plain.then(|| (quota(&pod), quota(&container_cgroup)));
    let is = |quota: &str| plain.then(|| (quota.to_owned(), quota.to_owned()));
    assert_eq!(both(), is("30000"), "{first}");

    let path = pod_path("whole");
    for (cpu, memory, expected) in [("500m", "96Mi", "50000"), ("200m", "96Mi", "20000")] {
        let patch = json!({"spec": { "resources": sizes(cpu, memory) }});
        let resize = format!("{path}/resize");
        let client = cluster.client();
        ok(client.patch(&resize, Patch::Strategic, &patch).await);
        let has = |pod: &Value| {
            let limits = &pod["status"]["resources"]["limits"];
            limits["cpu"] == cpu
                && limits["memory"] == memory
                && condition(pod, "PodResizeInProgress").is_none()
                && condition(pod, "PodResizePending").is_none()
        };
        let now = ok(cluster.wait(&path, "other sizes", has).await);
        assert_eq!(main_status(&now)["containerID"], id);
        assert_eq!(main_status(&now)["restartCount"], 0);
        assert_eq!(both(), is(expected));
    }
    delete(cluster, "whole").await;
}

/// An ephemeral container joins a running pod; changed labels restart nothing.
async fn ephemeral_container_is_started(cluster: &Cluster) {
    create(cluster, "debugged", RUNS, json!({})).await;
    let first = ok(cluster.wait_pod_ready("debugged").await);
    let path = pod_path("debugged");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ok(cluster.client().patch(&path, Patch::Merge, &label).await);
    let more = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "polylet-test:1",
        "command": ["sh", "-c", "exit 0"], "targetContainerName": "main"}]}});
    let of_debug = format!("{path}/ephemeralcontainers");
    ok(cluster
        .client()
        .patch(&of_debug, Patch::Strategic, &more)
        .await);
    let ended = |pod: &Value| {
        pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    };
    let now = ok(cluster.wait(&path, "the debug container", ended).await);
    assert_eq!(
        main_status(&now)["containerID"],
        main_status(&first)["containerID"]
    );
    assert_eq!(condition(&now, "Ready"), Some("True"));
    delete(cluster, "debugged").await;
}

/// A pod bound to a node that its affinity excludes.
async fn mismatched_pod_is_rejected(cluster: &Cluster) {
    let elsewhere = json!({"nodeSelector": {"zone": "elsewhere"}});
    create(cluster, "stranger", RUNS, elsewhere).await;
    let failed = |pod: &Value| pod["status"]["phase"] == "Failed";
    let path = pod_path("stranger");
    let refused = ok(cluster.wait(&path, "to be rejected", failed).await);
    assert_eq!(refused["status"]["reason"], "NodeAffinity");
    assert_eq!(
        refused["status"]["message"],
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    );
    wait_for_events(cluster, "stranger", &["NodeAffinity"]).await;
    delete(cluster, "stranger").await;
}
