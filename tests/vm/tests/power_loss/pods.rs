//! The objects of the churn.

use polylet_harness::image;
use polylet_vm::HOST;
use polylet_vm::node::NODE;
use serde_json::{Value, json};

/// Label of all pods of the churn, with the kind of the pod.
pub(crate) const KIND: &str = "churn";

/// Name of the ConfigMap that pods read.
pub(crate) const CONFIG_MAP: &str = "churn";

/// The ConfigMap's content. Its end shows that it is complete.
pub(crate) fn config_value(version: usize) -> String {
    format!("value-{version}-{}-end", "x".repeat(2000))
}

/// Reports the execution, and an incomplete ConfigMap. An execution has an identifier, so that its
/// repeated reports are one.
const REPORT: &str = r#"
trap 'exit 0' TERM
id=$(cat /proc/sys/kernel/random/uuid)
report() {
  until printf "GET /$1/$UID_OF_POD/$id HTTP/1.0\r\n\r\n" | nc -w 10 $SERVER | grep -q "200 OK"; do
    sleep 1
  done
}
report begun
if [ -e /config ]; then
  case "$(cat /config/key)" in value-*-end) ;; *) report torn ;; esac
  echo "$id" >> /scratch/executions
fi
"#;

/// Ends after some seconds and is not restarted.
pub(crate) fn once(name: &str, port: u16, seconds: u8, exit_code: u8) -> Value {
    let script = format!("{REPORT} sleep {seconds}; exit {exit_code}");
    let mut pod = pod(name, "once", port, &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

/// Serves until it is deleted, with volumes and a readiness probe.
pub(crate) fn serving(name: &str, port: u16) -> Value {
    let script =
        format!("{REPORT} httpd -p 8080 -h /scratch; while :; do sleep 3600 & wait $!; done");
    let mut pod = with_volumes(pod(name, "serving", port, &script));
    pod["spec"]["containers"][0]["readinessProbe"] = json!({
        "httpGet": { "port": 8080, "path": "/executions" },
        "periodSeconds": 5, "timeoutSeconds": 5,
    });
    pod
}

/// Fails after some seconds and is restarted, until it is deleted.
pub(crate) fn restarting(name: &str, port: u16, seconds: u8) -> Value {
    let script = format!("{REPORT} sleep {seconds}; exit 1");
    with_volumes(pod(name, "restarting", port, &script))
}

/// A Job of one pod, and another for each that is lost.
pub(crate) fn job(name: &str, port: u16) -> Value {
    let template = once(name, port, 1, 0);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "labels": { KIND: "job" } },
        "spec": {
            "completions": 1, "parallelism": 1, "backoffLimit": 100,
            "template": {
                "metadata": { "labels": { KIND: "once" } },
                "spec": template["spec"],
            },
        },
    })
}

/// A static pod's manifest. Without reports: its UID cannot be passed to it.
pub(crate) fn static_pod(name: &str) -> Value {
    let script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
    let mut pod = pod(name, "static", 0, script);
    pod["metadata"]["namespace"] = json!("default");
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    pod
}

fn pod(name: &str, kind: &str, port: u16, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { KIND: kind } },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": image::TEST,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
                "env": [
                    { "name": "SERVER", "value": format!("{HOST} {port}") },
                    { "name": "UID_OF_POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.uid" } } },
                ],
            }],
        },
    })
}

fn with_volumes(mut pod: Value) -> Value {
    pod["spec"]["volumes"] = json!([
        { "name": "config", "configMap": { "name": CONFIG_MAP } },
        { "name": "scratch", "emptyDir": {} },
    ]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "config", "mountPath": "/config" },
        { "name": "scratch", "mountPath": "/scratch" },
    ]);
    pod
}
