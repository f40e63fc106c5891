//! Pods that do not run: what `get`, `describe`, `logs` and `exec` say of them.

use serde_json::{Value, json};

use crate::manifests::pod;
use crate::session::Session;

/// The reason that the first container waits for.
fn waiting(reason: &'static str) -> impl Fn(&Value) -> bool {
    move |pod| {
        pod.pointer("/status/containerStatuses/0/state/waiting/reason") == Some(&reason.into())
    }
}

fn phase(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |pod| pod["status"]["phase"] == phase
}

pub(crate) async fn run(session: &mut Session<'_>) {
    let never = |more: Value| {
        let mut fields = json!({ "restartPolicy": "Never" });
        fields["container"] = more;
        fields
    };
    let absent_map = json!({ "envFrom": [{ "configMapRef": { "name": "absent" } }] });
    let absent_image = json!({ "image": "localhost:1/absent:1", "imagePullPolicy": "Never" });
    for pod in [
        pod("crash", "echo attempt; exit 3", &json!({})),
        pod("done", "echo result", &never(json!({}))),
        pod("fails", "echo failed; exit 9", &never(json!({}))),
        pod("unset", "true", &json!({ "container": absent_map })),
        pod("absent", "true", &json!({ "container": absent_image })),
        pod(
            "late",
            "true",
            &json!({ "initContainers": [{
                "name": "first", "image": "polylet-test:1", "command": ["sleep", "3600"],
            }] }),
        ),
    ] {
        session.apply(&pod).await;
    }
    session
        .wait_pod("done", "to succeed", phase("Succeeded"))
        .await;
    session.wait_pod("fails", "to fail", phase("Failed")).await;
    let reason = "CreateContainerConfigError";
    session.wait_pod("unset", reason, waiting(reason)).await;
    let reason = "ErrImageNeverPull";
    session.wait_pod("absent", reason, waiting(reason)).await;
    let is_running = |pod: &Value| {
        pod.pointer("/status/initContainerStatuses/0/state/running")
            .is_some()
    };
    session.wait_pod("late", "to initialize", is_running).await;
    let all = ["done", "fails", "unset", "absent", "late"];
    session.run(&[&["get", "pods"], &all[..]].concat()).await;
    session
        .run(&[&["get", "pods", "-o", "wide"], &all[..]].concat())
        .await;
    for name in all {
        described(session, name).await;
        session.run(&["logs", name]).await;
        session.run(&["logs", "-p", name]).await;
        session.run(&["exec", name, "--", "true"]).await;
    }
    session.run(&["logs", "late", "-c", "first"]).await;
    session.run(&["port-forward", "done", ":80"]).await;
    let delete = ["delete", "pods", "--now"];
    session.run(&[&delete[..], &all].concat()).await;
}

/// The container that crashes, once it waits for long.
pub(crate) async fn looping(session: &mut Session<'_>) {
    let backs_off = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        // A kubelet may say that it waits a minute later.
        let is_running = status["state"]["running"].is_object();
        !is_running && status["restartCount"].as_u64() >= Some(3)
    };
    session.wait_pod("crash", "to back off", backs_off).await;
    session.run(&["get", "pod", "crash"]).await;
    described(session, "crash").await;
    for words in [
        &["exec", "crash", "--", "true"][..],
        &["attach", "crash"],
        &["logs", "crash"],
        &["logs", "crash", "--previous"],
        &["logs", "-f", "--previous", "crash"],
        &["delete", "pod", "crash"],
    ] {
        session.run(words).await;
    }
}

async fn described(session: &mut Session<'_>, name: &str) {
    session.describe_pod(name).await;
}
