use serde_json::{Value, json};

use super::Case;
use super::cases::ready;
use crate::RUNS;

/// Scripts that print parts of a container's environment.
const SCRIPT: &str = include_str!("container_report.sh");

/// Pods whose containers print their environment.
pub fn cases() -> Vec<Case> {
    let caps = json!({ "container": { "securityContext": {
        "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE", "SYS_TIME"] },
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    } } });
    let user = json!({
        "securityContext": { "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "supplementalGroups": [3000] },
        "container": { "workingDir": "/tmp" },
    });
    let names = json!({
        "hostname": "me", "subdomain": "here", "setHostnameAsFQDN": true,
        "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["a.example", "b.example"] }],
        "dnsConfig": { "nameservers": ["192.0.2.9"], "searches": ["example.org"], "options": [{ "name": "ndots", "value": "2" }, { "name": "edns0" }] },
    });
    let own_dns = json!({ "dnsPolicy": "None", "enableServiceLinks": false, "dnsConfig": { "nameservers": ["192.0.2.9"] } });
    let size = json!({ "container": { "resources": {
        "requests": { "cpu": "20m", "memory": "20Mi" }, "limits": { "cpu": "30m", "memory": "32Mi" },
    } } });
    let guaranteed =
        json!({ "container": { "resources": { "limits": { "cpu": "30m", "memory": "32Mi" } } } });
    let levels = json!({ "resources": { "requests": { "cpu": "20m", "memory": "20Mi" }, "limits": { "cpu": "30m", "memory": "32Mi" } } });
    let sysctl = json!({ "securityContext": { "sysctls": [{ "name": "net.ipv4.ping_group_range", "value": "0 5" }] } });
    let shares = json!({ "shareProcessNamespace": true, "securityContext": { "seccompProfile": { "type": "Unconfined" } } });
    let privileged = json!({ "container": { "securityContext": { "privileged": true } } });
    let host = json!({ "hostNetwork": true, "hostPID": true, "hostIPC": true });
    let host_dns = json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet", "hostAliases": [{ "ip": "192.0.2.7", "hostnames": ["a.example"] }] });
    vec![
        view("sees", json!({})),
        view("sees-caps", caps),
        view("sees-user", user.clone()),
        view("sees-names", names),
        view("sees-own-dns", own_dns),
        view("sees-node-dns", json!({ "dnsPolicy": "Default" })),
        view("sees-size", size),
        view("sees-guaranteed", guaranteed),
        view("sees-pod-level", levels),
        view("sees-sysctl", sysctl),
        view("sees-processes", shares),
        view("sees-privileged", privileged),
        view("sees-host", host),
        view("sees-host-dns", host_dns),
        view("sees-volumes", volumes(json!({}))),
        view("sees-volumes-user", volumes(user)),
        view("sees-variables", variables()),
    ]
}

fn view(name: &str, more: Value) -> Case {
    let script = format!("ME={name}\n{SCRIPT}\n{RUNS}");
    let mut case = super::cases::case(name, &script, &more, vec![ready()]);
    let spec = &mut case.object.1["spec"];
    push(
        &mut spec["volumes"],
        json!({ "name": "shared", "hostPath": { "path": "SHARED" } }),
    );
    let container = &mut spec["containers"][0];
    push(
        &mut container["volumeMounts"],
        json!({ "name": "shared", "mountPath": "/shared" }),
    );
    container["readinessProbe"] = json!({
        "exec": { "command": ["test", "-e", format!("/shared/{name}")] }, "periodSeconds": 1, "timeoutSeconds": 20, "failureThreshold": 100,
    });
    case
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn volumes(more: Value) -> Value {
    let mut spec = more;
    spec["volumes"] = json!([
        { "name": "map", "configMap": { "name": "settings" } },
        { "name": "secret", "secret": { "secretName": "login", "defaultMode": 0o400,
            "items": [{ "key": "user", "path": "deep/user", "mode": 0o444 }, { "key": "word", "path": "word" }] } },
        { "name": "info", "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "cpu", "resourceFieldRef": { "containerName": "main", "resource": "limits.cpu" } },
            { "path": "memory", "resourceFieldRef": { "containerName": "main", "resource": "limits.memory", "divisor": "1Mi" }, "mode": 0o600 },
        ] } },
        { "name": "all", "projected": { "defaultMode": 0o440, "sources": [
            { "configMap": { "name": "settings" } },
            { "secret": { "name": "login", "items": [{ "key": "user", "path": "user" }] } },
            { "serviceAccountToken": { "path": "it/token", "expirationSeconds": 3600, "audience": "me" } },
        ] } },
        { "name": "scratch", "emptyDir": {} },
        { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } },
    ]);
    spec["container"]["resources"] = json!({ "limits": { "cpu": "1500m", "memory": "64Mi" }, "requests": { "cpu": "10m", "memory": "10Mi" } });
    spec["container"]["volumeMounts"] = json!([
        { "name": "map", "mountPath": "/map" }, { "name": "secret", "mountPath": "/secret" },
        { "name": "info", "mountPath": "/info" }, { "name": "all", "mountPath": "/all" },
        { "name": "scratch", "mountPath": "/scratch" }, { "name": "memory", "mountPath": "/memory" },
        { "name": "scratch", "mountPath": "/sub", "subPath": "a/b" },
        { "name": "map", "mountPath": "/sub-file", "subPath": "key", "readOnly": true },
    ]);
    spec
}

fn variables() -> Value {
    let field = |path: &str| json!({ "name": path.replace(['.', '[', ']', '\''], "_"), "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let size = |name: &str, resource: &str| json!({ "name": name, "valueFrom": { "resourceFieldRef": { "resource": resource } } });
    json!({ "container": {
        "resources": { "limits": { "cpu": "1500m" }, "requests": { "cpu": "10m", "memory": "10Mi" } },
        "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "login" } }],
        "env": [
            { "name": "A", "value": "1" }, { "name": "B", "value": "$(A) $(P_key) $$(A) $(NONE) $(KUBERNETES_SERVICE_HOST)" },
            { "name": "user", "value": "over" },
            field("metadata.name"), field("metadata.namespace"), field("metadata.uid"), field("spec.nodeName"),
            field("spec.serviceAccountName"), field("status.hostIP"), field("status.hostIPs"), field("status.podIP"), field("status.podIPs"),
            size("CPU", "limits.cpu"), size("REQUEST", "requests.cpu"), size("MEMORY", "requests.memory"),
            size("DISK", "requests.ephemeral-storage"),
            { "name": "OPTIONAL", "valueFrom": { "configMapKeyRef": { "name": "none", "key": "k", "optional": true } } },
        ],
    } })
}
