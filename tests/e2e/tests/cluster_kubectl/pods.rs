//! A pod from its creation to its end, as `get -w`, `describe` and `events` show it.

use polylet_e2e::RUNS;
use polylet_harness::wait::{Poll, until};
use serde_json::{Value, json};

use crate::manifests;
use crate::session::{LineOrder, Session};

pub(crate) async fn run(session: &mut Session<'_>) {
    session.apply(&manifests::settings()).await;
    let watch = [
        "get",
        "pods",
        "-w",
        "--output-watch-events",
        "-l",
        "name=web",
    ];
    let mut watched = session.start(&watch);
    session.apply(&manifests::web()).await;
    let ready = ["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"];
    session.run(&ready).await;
    watched.wait_for("2/2").await;
    let output = watched.interrupt().await;
    session.record(&watch.join(" "), LineOrder::Kept, &changes(&output));

    for words in [
        &["get", "pod", "web"][..],
        &["get", "pod", "web", "-o", "wide"],
        &["get", "pods", "--show-labels", "-l", "name=web"],
        &[
            "get",
            "pod",
            "web",
            "-o",
            "jsonpath={.status.qosClass} {.status.phase}",
        ],
    ] {
        session.run(words).await;
    }
    session.describe_pod("web").await;
    let events = ["events", "--for", "pod/web"];
    session.run_in(LineOrder::Any, &events).await;
    changed(session).await;
}

/// Changes of a running pod.
async fn changed(session: &mut Session<'_>) {
    session.run(&["label", "pod", "web", "color=blue"]).await;
    session
        .run(&["annotate", "pod", "web", "note=written"])
        .await;
    let resources = json!({ "spec": { "containers": [{
        "name": "main", "resources": { "requests": { "cpu": "60m" } },
    }] } });
    let resize = [
        "patch",
        "pod",
        "web",
        "--subresource=resize",
        "-p",
        &resources.to_string(),
    ];
    session.run(&resize).await;
    let is_resized = |pod: &Value| {
        let cpu = pod.pointer("/status/containerStatuses/0/resources/requests/cpu");
        cpu == Some(&"60m".into())
    };
    session.wait_pod("web", "to be resized", is_resized).await;
    let shown = "jsonpath={.status.containerStatuses[0].resources}";
    session.run(&["get", "pod", "web", "-o", shown]).await;
    let forbidden = [
        "patch",
        "pod",
        "web",
        "-p",
        "{\"spec\":{\"hostNetwork\":true}}",
    ];
    session.run(&forbidden).await;
}

/// The lines of a watch without repetitions: some changes are invisible.
fn changes(output: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Without the age.
        let line = words[..words.len().saturating_sub(1)].join(" ");
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// Pods are deleted: in time, at once, and by a kubectl that does not wait.
pub(crate) async fn delete(session: &mut Session<'_>) {
    session
        .apply(&manifests::pod("polite", RUNS, &json!({})))
        .await;
    session
        .apply(&manifests::pod("deaf", "sleep 3600", &json!({})))
        .await;
    for name in ["polite", "deaf"] {
        let ready = ["wait", "--for=condition=Ready", "pod", name];
        session.run(&ready).await;
    }
    let watch = ["get", "pod", "polite", "-w", "--output-watch-events"];
    let mut watched = session.start(&watch);
    watched.wait_for("1/1").await;
    session.run(&["delete", "pod", "polite"]).await;
    watched.wait_for("DELETED").await;
    let output = watched.interrupt().await;
    session.record(&watch.join(" "), LineOrder::Kept, &changes(&output));

    let later = ["delete", "pod", "deaf", "--wait=false", "--grace-period=30"];
    session.run(&later).await;
    session.run(&["get", "pod", "deaf"]).await;
    let killing = "events?fieldSelector=involvedObject.name=deaf,reason=Killing";
    session
        .wait_list(killing, "to exist", |count| count > 0)
        .await;
    session.describe_pod("deaf").await;
    for name in ["deaf", "web"] {
        session
            .run(&["delete", "pod", name, "--force", "--grace-period=0"])
            .await;
    }
    session.run(&["get", "pod", "deaf", "web"]).await;
    session.run(&["logs", "deaf"]).await;
    // Its containers end, although nobody sees the pod any more.
    let ended = until("the end of the containers of deaf", || async {
        let found = session.agent.containerd.cri().containers().await;
        let found = polylet_e2e::ok(found);
        let name = "io.kubernetes.pod.name";
        let is_left = found
            .iter()
            .any(|container| container.labels.get(name).is_some_and(|pod| pod == "deaf"));
        if is_left {
            Poll::Pending("still there".to_owned())
        } else {
            Poll::Ready(())
        }
    })
    .await;
    let text = if ended.is_ok() { "gone" } else { "left" };
    session.record("containers of deaf", LineOrder::Kept, text);
}

#[test]
fn a_watch_has_each_change_once() {
    let output = "EVENT NAME AGE\nADDED web 1/1 5s\nMODIFIED web 0/1 6s\nMODIFIED web 0/1 7s\n";
    assert_eq!(
        changes(output),
        "EVENT NAME\nADDED web 1/1\nMODIFIED web 0/1"
    );
}
