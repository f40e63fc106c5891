//! Pods that exceed their ephemeral-storage limits are evicted, with the limit in their status; pods
//! within their limits are kept.

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::{Node, NodeOptions};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn ephemeral_storage_limits_are_enforced() {
    let mut node = node_with(NodeOptions {
        polylet: json!({ "evictStaticPods": true }),
        ..NodeOptions::default()
    })
    .await;
    let fills = |path: &str| format!("dd if=/dev/zero of={path} bs=1M count=3; {RUNS}");
    put(
        &node,
        "volume",
        &fills("/v/big"),
        &volume(&json!({ "sizeLimit": "1Mi" })),
    );
    put(
        &node,
        "whole",
        &fills("/v/big"),
        &with_limit("1Mi", &volume(&json!({}))),
    );
    put(
        &node,
        "layer",
        &fills("/tmp/big"),
        &with_limit("1M", &beside()),
    );
    let logs = format!("yes twelve-bytes | head -c 3000000; {RUNS}");
    put(&node, "logs", &logs, &with_limit("1024Ki", &beside()));
    put(
        &node,
        "within",
        &fills("/v/big"),
        &with_limit("100Mi", &volume(&json!({ "sizeLimit": "50Mi" }))),
    );

    let mut steps = Steps::new();
    steps
        .run("pods over their limits are evicted", async {
            for (name, expected) in [
                (
                    "volume",
                    "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ",
                ),
                (
                    "whole",
                    "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
                ),
                (
                    "layer",
                    "Container main exceeded its local ephemeral storage limit \"1M\". ",
                ),
                (
                    "logs",
                    "Container main exceeded its local ephemeral storage limit \"1Mi\". ",
                ),
            ] {
                let evicted = ok(node
                    .wait_pod(name, "to be evicted", |pod| {
                        pod.phase() == "Failed" && pod.reason() == "Evicted"
                    })
                    .await);
                assert_eq!(evicted.message(), expected);
                assert_eq!(evicted.condition("DisruptionTarget"), None);
            }
        })
        .await;
    steps
        .run("a pod within its limits is kept", async {
            assert_eq!(ok(node.wait_ready("within").await).phase(), "Running");
        })
        .await;
    steps
        .run("the eviction survives restarts", async {
            // The decision survives restarts of eviction and of the coordinator.
            for service in ["eviction", "sync-coordinator"] {
                ok(node.kill(service).await);
            }
            ok(node.wait_in_step().await);
            let after = ok(node
                .wait_pod("volume", "to have a status", |pod| !pod.phase().is_empty())
                .await);
            assert_eq!(after.reason(), "Evicted");
            assert_eq!(ok(node.wait_ready("within").await).phase(), "Running");
        })
        .await;
    steps
        .run("pods are removed", async {
            let names = ["volume", "whole", "layer", "logs", "within"];
            for name in names {
                ok(node.take(&format!("{name}.json")));
            }
            for name in names {
                ok(node.wait_gone(name).await);
            }
        })
        .await;
    steps.finish();
    ok(node.remove());
}

fn put(node: &Node, name: &str, script: &str, more: &Value) {
    ok(node.put(&format!("{name}.json"), &pod(name, script, more)));
}

/// An emptyDir at `/v`.
fn volume(empty_dir: &Value) -> Value {
    json!({
        "volumes": [{ "name": "v", "emptyDir": empty_dir }],
        "container": { "volumeMounts": [{ "name": "v", "mountPath": "/v" }] },
    })
}

/// A second container whose limit raises the pod's.
fn beside() -> Value {
    json!({
        "initContainers": [{
            "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
            "command": ["sh", "-c", RUNS],
            "resources": { "limits": { "ephemeral-storage": "100Mi" } },
        }],
        "container": {},
    })
}

fn with_limit(limit: &str, pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["container"]["resources"] = json!({ "limits": { "ephemeral-storage": limit } });
    pod
}
