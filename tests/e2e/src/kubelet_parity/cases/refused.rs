use serde_json::{Value, json};

use super::{ended, runs};
use crate::kubelet_parity::Case;

/// Pods that are rejected at admission.
pub fn cases() -> Vec<Case> {
    let requests = |requests: Value| json!({ "container": { "resources": { "requests": requests.clone(), "limits": requests } } });
    let port = json!({ "container": { "ports": [{ "containerPort": 80, "hostPort": 18093 }] } });
    let mut second = runs("port-taken", &port, vec![ended()]);
    second.after = Some("port-taker");
    let affinity = json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["elsewhere"] }] }],
    } } } });
    let sysctl = |name: &str, value: &str| json!({ "securityContext": { "sysctls": [{ "name": name, "value": value }] } });
    vec![
        runs(
            "out-of-cpu",
            &requests(json!({ "cpu": "100" })),
            vec![ended()],
        ),
        runs(
            "out-of-memory",
            &requests(json!({ "memory": "10Ti" })),
            vec![ended()],
        ),
        runs(
            "out-of-both",
            &requests(json!({ "cpu": "100", "memory": "10Ti" })),
            vec![ended()],
        ),
        runs(
            "no-hugepages",
            &requests(json!({ "hugepages-2Mi": "4Mi", "memory": "16Mi" })),
            vec![ended()],
        ),
        runs(
            "out-of-disk",
            &requests(json!({ "ephemeral-storage": "100Ti" })),
            vec![ended()],
        ),
        runs("port-taker", &port, vec![super::ready()]),
        second,
        runs(
            "selector",
            &json!({ "nodeSelector": { "zone": "elsewhere" } }),
            vec![ended()],
        ),
        runs("affinity", &affinity, vec![ended()]),
        runs("sysctl", &sysctl("kernel.msgmax", "8192"), vec![ended()]),
        runs(
            "sysctl-shape",
            &sysctl("kernel.unknown", "1"),
            vec![ended()],
        ),
        runs(
            "windows",
            &json!({ "os": { "name": "windows" } }),
            vec![ended()],
        ),
        runs(
            "apparmor",
            &json!({ "securityContext": { "appArmorProfile": { "type": "Localhost", "localhostProfile": "none" } } }),
            vec![ended()],
        ),
        // Resources unknown to the node are left to the scheduler.
        runs(
            "extended",
            &requests(json!({ "example.com/thing": "1" })),
            vec![super::ready()],
        ),
    ]
}
