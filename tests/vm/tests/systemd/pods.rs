use polylet_harness::image;
use polylet_vm::node::NODE;
use serde_json::{Value, json};

/// The pods that run all the time, one of each QoS class, and the mirror of a static one.
pub(crate) const LASTING: [&str; 4] = ["guaranteed", "burstable", "best-effort", "fixed-vm"];

const SERVE: &str = "trap 'exit 0' TERM; echo started; httpd -p 8080 -h /data; while :; do sleep 3600 & wait $!; done";

/// Objects that the pods mount.
pub(crate) fn config_map() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "settings" }, "data": { "key": "value" },
    })
}

pub(crate) fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "password" }, "stringData": { "key": "secret" },
    })
}

/// A pod of each class: with all kinds of volumes that need a mount, and all kinds of probes.
pub(crate) fn lasting() -> [Value; 3] {
    let resources = json!({ "cpu": "500m", "memory": "32Mi" });
    let guaranteed = pod(
        "guaranteed",
        SERVE,
        &json!({
            "resources": { "requests": resources, "limits": resources },
            "readinessProbe": probe(&json!({ "httpGet": { "port": 8080, "path": "/key" } })),
            "volumeMounts": [{ "name": "config", "mountPath": "/data" }, { "name": "secret", "mountPath": "/secret" }],
        }),
        &json!([
            { "name": "config", "configMap": { "name": "settings" } },
            { "name": "secret", "secret": { "secretName": "password" } },
        ]),
    );
    let burstable = pod(
        "burstable",
        SERVE,
        &json!({
            "resources": { "requests": { "memory": "16Mi" }, "limits": { "memory": "32Mi" } },
            "readinessProbe": probe(&json!({ "tcpSocket": { "port": 8080 } })),
            "livenessProbe": probe(&json!({ "exec": { "command": ["test", "-d", "/data"] } })),
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "memory", "mountPath": "/memory" }],
        }),
        &json!([
            { "name": "data", "emptyDir": {} },
            { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "8Mi" } },
        ]),
    );
    let best_effort = pod(
        "best-effort",
        SERVE,
        &json!({
            "startupProbe": probe(&json!({ "exec": { "command": ["test", "-e", "/info/name"] } })),
            "volumeMounts": [{ "name": "info", "mountPath": "/info" }, { "name": "host", "mountPath": "/data" }],
        }),
        &json!([
            { "name": "info", "downwardAPI": {
                "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }],
            } },
            { "name": "host", "hostPath": { "path": "/srv", "type": "Directory" } },
        ]),
    );
    [guaranteed, burstable, best_effort]
}

/// A pod with a volume and a probe.
pub(crate) fn serving(name: &str) -> Value {
    pod(
        name,
        SERVE,
        &json!({
            "readinessProbe": probe(&json!({ "httpGet": { "port": 8080, "path": "/key" } })),
            "volumeMounts": [{ "name": "config", "mountPath": "/data" }],
        }),
        &json!([{ "name": "config", "configMap": { "name": "settings" } }]),
    )
}

/// A pod whose container fails again and again.
pub(crate) fn restarting() -> Value {
    pod("restarting", "exit 1", &json!({}), &json!([]))
}

/// Pods that do not start, with what the journal says of each.
pub(crate) fn failing() -> [(Value, &'static str); 2] {
    let mut image = pod("without-image", "exit 1", &json!({}), &json!([]));
    image["spec"]["containers"][0]["image"] = json!("registry.invalid/none:1");
    // Objects that are missing are awaited, which is no failure of an operation.
    let source = json!({ "path": "/nonexistent", "type": "Directory" });
    let missing = json!([{ "name": "data", "hostPath": source }]);
    // One that no container mounts is not set up.
    let mounts = json!({ "volumeMounts": [{ "name": "data", "mountPath": "/data" }] });
    let volume = pod("without-volume", "exit 1", &mounts, &missing);
    [(image, "step failed"), (volume, "volume operation failed")]
}

/// A static pod's manifest; its mirror is `fixed-vm`.
pub(crate) fn fixed() -> Value {
    let mut pod = pod(
        "fixed",
        SERVE,
        &json!({
            "readinessProbe": probe(&json!({ "tcpSocket": { "port": 8080 } })),
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        }),
        &json!([{ "name": "data", "emptyDir": {} }]),
    );
    pod["metadata"]["namespace"] = json!("default");
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    pod
}

/// A container with more processes than one, of which one uses more memory than there is.
pub(crate) fn greedy() -> Value {
    let script = "sleep 3600 & sh -c 'head -c 100m /dev/zero | tail'; wait";
    let limit = json!({ "memory": "16Mi" });
    let mut pod = pod(
        "greedy",
        script,
        &json!({
            "resources": { "requests": limit, "limits": limit },
        }),
        &json!([]),
    );
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

/// An emulated processor is slow: a probe that takes long is none that failed.
fn probe(action: &Value) -> Value {
    let mut probe = json!({ "periodSeconds": 5, "timeoutSeconds": 20, "failureThreshold": 10 });
    if let (Some(fields), Some(action)) = (probe.as_object_mut(), action.as_object()) {
        fields.extend(action.clone());
    }
    probe
}

fn pod(name: &str, script: &str, container: &Value, volumes: &Value) -> Value {
    let mut main = json!({
        "name": "main",
        "image": image::TEST,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    });
    if let (Some(fields), Some(more)) = (main.as_object_mut(), container.as_object()) {
        fields.extend(more.clone());
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 2,
            "containers": [main],
            "volumes": volumes,
        },
    })
}
