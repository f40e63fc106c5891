//! The objects of the session.

use polylet_e2e::RUNS;
use serde_json::{Value, json};

/// Serves a page on port 8080, and sends back what it receives on port 9000.
const WEB: &str = "mkdir /www; echo hello >/www/index.html; \
    nc -ll -p 9000 -e cat & exec httpd -f -p 8080 -h /www";
/// Answers each line until `bye`.
pub(crate) const ANSWERS: &str = "echo ready; while read -r line; do echo \"got $line\"; \
    [ \"$line\" = bye ] && exit 4; done; echo end";

/// A pod of one container, which runs on the session's node.
pub(crate) fn pod(name: &str, script: &str, more: &Value) -> Value {
    let mut pod: Value =
        serde_json::from_str(&polylet_e2e::pod(name, script, more)).expect("a pod is JSON");
    pod["metadata"]["labels"] = json!({ "name": name });
    pod["spec"]["nodeSelector"] = on_node();
    pod
}

fn on_node() -> Value {
    json!({ "kubernetes.io/hostname": "NODE" })
}

/// A pod with a bit of everything that is described.
pub(crate) fn web() -> Value {
    let mut pod = pod(
        "web",
        WEB,
        &json!({
            "initContainers": [{
                "name": "prepare", "image": "polylet-test:1",
                "command": ["sh", "-c", "echo prepared > /data/file"],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [
                { "name": "data", "emptyDir": {} },
                { "name": "settings", "configMap": { "name": "settings" } },
            ],
            "container": {
                "ports": [{ "name": "web", "containerPort": 8080 }],
                "readinessProbe": {
                    "httpGet": { "port": "web", "path": "/" }, "periodSeconds": 1,
                },
                "livenessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 5 },
                "resources": {
                    "requests": { "cpu": "50m", "memory": "32Mi" },
                    "limits": { "memory": "64Mi" },
                },
                "env": [
                    { "name": "PLAIN", "value": "value" },
                    { "name": "OWN_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                    { "name": "KEY", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "key" } } },
                ],
                "volumeMounts": [
                    { "name": "data", "mountPath": "/data" },
                    { "name": "settings", "mountPath": "/settings", "readOnly": true },
                ],
            },
        }),
    );
    pod["spec"]["containers"]
        .as_array_mut()
        .expect("containers")
        .push(json!({
            "name": "side", "image": "polylet-test:1", "command": ["sh", "-c", format!("echo side; {RUNS}")],
        }));
    pod
}

/// The ConfigMap of the pod `web`.
pub(crate) fn settings() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "key": "value of the key" },
    })
}

/// A static pod.
pub(crate) fn fixed(namespace: &str) -> Value {
    let pod = polylet_e2e::pod("fixed", RUNS, &json!({}));
    let mut pod: Value = serde_json::from_str(&pod).expect("a pod is JSON");
    pod["metadata"]["namespace"] = namespace.into();
    pod
}

/// A Deployment of two pods, or a DaemonSet.
pub(crate) fn workload(kind: &str, name: &str) -> Value {
    let mut workload = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": pod(name, RUNS, &json!({}))["spec"],
            },
        },
    });
    if kind == "Deployment" {
        workload["spec"]["replicas"] = 2.into();
    }
    workload
}
