//! Various pods on one node at the same time: restart policies, probes, volumes, users.

use std::fs;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node, ok, pod};
use polylet_harness::{Node, PodView};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn init_containers_sidecars_and_restart_policies() {
    let mut steps = Steps::new();
    let node = node().await;
    let host = node.scratch().join("host");
    fs::create_dir_all(&host).unwrap();
    objects(&node, "one");
    for (name, text) in kinds(&host.display().to_string()) {
        ok(node.put(&format!("{name}.json"), &text));
    }

    let ended = |pod: &PodView| ["Succeeded", "Failed"].contains(&pod.phase());
    let done = ok(node.wait_pod("done", "to end", ended).await);
    assert_eq!(
        (done.phase(), done.identity()[0].2),
        ("Succeeded", 0),
        "{}",
        done.line()
    );
    let failed = ok(node.wait_pod("failed", "to end", ended).await);
    assert_eq!(failed.phase(), "Failed", "{}", failed.line());
    assert_eq!(failed.container("main").unwrap().exit_code, Some(7));

    steps
        .run("volumes are readable", volumes_are_readable(&node))
        .await;
    ok(node.wait_ready("user").await);
    ok(node.wait_ready("hostnet").await);
    assert_eq!(ok(node.wait_ready("hostpath").await).phase(), "Running");
    assert_eq!(ok(fs::read_to_string(host.join("from-pod"))), "written\n");
    steps
        .run(
            "probes set readiness and restart",
            probes_set_readiness_and_restart(&node),
        )
        .await;
    steps
        .run("sidecars start first", sidecars_start_first(&node))
        .await;

    let names: Vec<&str> = kinds("").iter().map(|(name, _)| *name).collect();
    for name in &names {
        ok(node.take(&format!("{name}.json")));
    }
    for name in &names {
        ok(node.wait_gone(name).await);
    }
    assert_eq!(node.mounts(), Vec::<std::path::PathBuf>::new());
    steps.finish();
    ok(node.remove());
}

fn objects(node: &Node, value: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": value, "other": "same" },
    });
    ok(node.put("settings.json", &map.to_string()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "stringData": { "user": "me" },
    });
    ok(node.put("login.json", &secret.to_string()));
}

fn kinds(host: &str) -> Vec<(&'static str, String)> {
    let never = json!({ "restartPolicy": "Never" });
    let user = json!({
        "securityContext": { "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000 },
        "volumes": [{ "name": "e", "emptyDir": {} }],
        "container": { "volumeMounts": [{ "name": "e", "mountPath": "/e" }] },
    });
    let is_user = format!("test $(id -u) = 1000 && touch /e/mine && {RUNS}");
    let hostpath = json!({
        "volumes": [{ "name": "h", "hostPath": { "path": host, "type": "Directory" } }],
        "container": { "volumeMounts": [{ "name": "h", "mountPath": "/h" }] },
    });
    let writes = format!("echo written > /h/from-pod; {RUNS}");
    vec![
        (
            "done",
            pod("done", "exit 0", &json!({ "restartPolicy": "OnFailure" })),
        ),
        ("failed", pod("failed", "exit 7", &never)),
        ("volumes", pod("volumes", RUNS, &all_volumes())),
        ("user", pod("user", &is_user, &user)),
        (
            "hostnet",
            pod("hostnet", RUNS, &json!({ "hostNetwork": true })),
        ),
        ("hostpath", pod("hostpath", &writes, &hostpath)),
        (
            "moody",
            pod("moody", &format!("touch /tmp/ready; {RUNS}"), &probed_pod()),
        ),
        ("sidecar", pod("sidecar", RUNS, &sidecar())),
    ]
}

/// A pod with every local volume type and a probe that reads one of them.
fn all_volumes() -> Value {
    let labels = json!({ "path": "labels", "fieldRef": { "fieldPath": "metadata.name" } });
    let sources = json!([
        { "configMap": { "name": "settings", "items": [{ "key": "other", "path": "a/b" }] } },
        { "secret": { "name": "login" } },
        { "downwardAPI": { "items": [labels] } },
    ]);
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/{name}") });
    let check = "test -s /map/key && test -s /secret/user && test -s /down/labels && \
                 test -s /all/a/b && test -s /all/user && test -s /all/labels && \
                 test -s /sub/key && test -d /memory";
    json!({
        "volumes": [
            { "name": "map", "configMap": { "name": "settings" } },
            { "name": "secret", "secret": { "secretName": "login" } },
            { "name": "down", "downwardAPI": { "items": [labels] } },
            { "name": "all", "projected": { "sources": sources } },
            { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
        ],
        "container": {
            "volumeMounts": [
                mount("map"), mount("secret"), mount("down"), mount("all"), mount("memory"),
                { "name": "map", "mountPath": "/sub/key", "subPath": "key" },
            ],
            "readinessProbe": {
                "exec": { "command": ["sh", "-c", check] }, "periodSeconds": 1,
            },
        },
    })
}

/// Ready while one file exists; killed when another exists.
fn probed_pod() -> Value {
    json!({
        "container": {
            "readinessProbe": {
                "exec": { "command": ["test", "-e", "/tmp/ready"] },
                "periodSeconds": 1, "failureThreshold": 1,
            },
            "livenessProbe": {
                "exec": { "command": ["test", "!", "-e", "/tmp/sick"] },
                "periodSeconds": 1, "failureThreshold": 1,
            },
            "startupProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1 },
        },
    })
}

/// A sidecar: later containers wait until it has started.
fn sidecar() -> Value {
    json!({
        "initContainers": [{
            "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
            "command": ["sh", "-c", RUNS],
        }],
    })
}

/// A changed ConfigMap reaches the running pod without a restart.
async fn volumes_are_readable(node: &Node) {
    let before = ok(node.wait_ready("volumes").await);
    objects(node, "two");
    let file = node.dirs().root.join("pods").join(&before.uid);
    let file = file.join("volumes/kubernetes.io~configmap/map/key");
    let poll = || async {
        match fs::read_to_string(&file) {
            Ok(text) if text == "two" => polylet_harness::wait::Poll::Ready(()),
            seen => polylet_harness::wait::Poll::Pending(format!("{seen:?}")),
        }
    };
    ok(polylet_harness::wait::until("the changed ConfigMap in the pod", poll).await);
    let after = ok(node.wait_ready("volumes").await);
    assert_eq!(after.identity(), before.identity());
}

async fn probes_set_readiness_and_restart(node: &Node) {
    let before = ok(node.wait_ready("moody").await);
    exec(node, &before, "main", "rm /tmp/ready").await;
    let unready = |pod: &PodView| !pod.is_ready() && pod.container("main").unwrap().restarts == 0;
    ok(node
        .wait_pod("moody", "to be unready and not restarted", unready)
        .await);
    exec(node, &before, "main", "touch /tmp/sick").await;
    let restarted = |pod: &PodView| pod.is_ready() && pod.container("main").unwrap().restarts == 1;
    ok(node
        .wait_pod("moody", "to be restarted by its liveness probe", restarted)
        .await);
}

async fn sidecars_start_first(node: &Node) {
    let pod = ok(node.wait_ready("sidecar").await);
    let beside = pod.container("beside").unwrap();
    assert!(beside.state == "running" && beside.ready, "{beside:?}");
}
