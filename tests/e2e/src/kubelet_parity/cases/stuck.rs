use serde_json::{Value, json};

use super::{runs, waits};
use crate::kubelet_parity::{Case, ScenarioStep};

macro_rules! until {
    ($reason:literal) => {
        vec![ScenarioStep::Until($reason, |pod| waits(pod, $reason))]
    };
}

/// Pods that never reach Running.
pub fn cases() -> Vec<Case> {
    let image = |image: &str, policy: &str| json!({ "container": { "image": image, "imagePullPolicy": policy } });
    let env =
        |source: Value| json!({ "container": { "env": [{ "name": "A", "valueFrom": source }] } });
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = "it".into();
        json!({ "volumes": [volume], "container": { "volumeMounts": [{ "name": "it", "mountPath": "/it" }] } })
    };
    let security = |fields: Value| json!({ "container": { "securityContext": fields } });
    let command =
        |policy: &str| json!({ "restartPolicy": policy, "container": { "command": ["/nope"] } });
    let in_order = json!({ "initContainers": [{ "name": "first", "image": "polylet-test:1", "command": ["/nope"] }] });
    vec![
        runs(
            "image-name",
            &image("Bad/Name", "IfNotPresent"),
            until!("InvalidImageName"),
        ),
        runs(
            "image-never",
            &image("none:1", "Never"),
            until!("ErrImageNeverPull"),
        ),
        runs(
            "image-volume",
            &volume(json!({ "image": { "reference": "none:1", "pullPolicy": "Never" } })),
            until!("ErrImageNeverPull"),
        ),
        runs(
            "image-none",
            &image("127.0.0.1:1/none:1", "Always"),
            until!("ImagePullBackOff"),
        ),
        runs(
            "no-key",
            &env(json!({ "configMapKeyRef": { "name": "settings", "key": "none" } })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-map",
            &env(json!({ "configMapKeyRef": { "name": "none", "key": "none" } })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-secret",
            &env(json!({ "secretKeyRef": { "name": "none", "key": "none" } })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-secret-key",
            &env(json!({ "secretKeyRef": { "name": "login", "key": "none" } })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-sub-path",
            &json!({
                "volumes": [{ "name": "it", "emptyDir": {} }],
                "container": { "volumeMounts": [{ "name": "it", "mountPath": "/it", "subPathExpr": "$(NONE)" }] },
            }),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-env-from",
            &json!({ "container": { "envFrom": [{ "configMapRef": { "name": "none" } }] } }),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-secret-volume",
            &volume(json!({ "secret": { "secretName": "none" } })),
            until!("ContainerCreating"),
        ),
        runs(
            "no-claim",
            &volume(json!({ "persistentVolumeClaim": { "claimName": "none" } })),
            until!("ContainerCreating"),
        ),
        runs(
            "no-path",
            &volume(json!({ "hostPath": { "path": "/no/such", "type": "Directory" } })),
            until!("ContainerCreating"),
        ),
        runs(
            "no-handler",
            &json!({ "runtimeClassName": "unknown" }),
            until!("ContainerCreating"),
        ),
        runs(
            "bad-command",
            &command("Always"),
            vec![ScenarioStep::Until("fails", |pod| {
                waits(pod, "RunContainerError") || waits(pod, "CrashLoopBackOff")
            })],
        ),
        runs("bad-command-never", &command("Never"), vec![super::ended()]),
        runs(
            "bad-init",
            &in_order,
            vec![ScenarioStep::Until("fails", |pod| {
                waits(pod, "RunContainerError") || waits(pod, "CrashLoopBackOff")
            })],
        ),
        runs(
            "bad-directory",
            &json!({ "container": { "workingDir": "/etc/passwd" } }),
            vec![ScenarioStep::Until("fails", |pod| {
                waits(pod, "RunContainerError")
                    || waits(pod, "CrashLoopBackOff")
                    || waits(pod, "CreateContainerError")
            })],
        ),
        runs(
            "not-root",
            &security(json!({ "runAsNonRoot": true })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "not-root-user",
            &security(json!({ "runAsNonRoot": true, "runAsUser": 0 })),
            until!("CreateContainerConfigError"),
        ),
        runs(
            "no-profile",
            &security(
                json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "none.json" } }),
            ),
            vec![ScenarioStep::Until("fails", |pod| {
                waits(pod, "CreateContainerError") || waits(pod, "CreateContainerConfigError")
            })],
        ),
        runs(
            "long-name",
            &json!({ "hostname": "h".repeat(60), "subdomain": "s".repeat(20), "setHostnameAsFQDN": true }),
            until!("ContainerCreating"),
        ),
    ]
}
