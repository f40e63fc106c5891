//! `kubectl logs` in its forms.

use serde_json::{Value, json};

use crate::manifests::pod;
use crate::session::{LineOrder, Session};

/// Lines of both streams, whose order is certain after a while alone, and one that is long.
const LINES: &str = "echo first; sleep 0.5; echo second >&2; sleep 0.5; i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo line $i; done; \
    head -c 20000 /dev/zero | tr '\\0' x; echo; printf unfinished; trap 'exit 0' TERM; \
    while :; do sleep 3600 & wait $!; done";
/// Ends after a while.
const ENDS: &str = "for i in 1 2 3 4; do echo step $i; sleep 1; done; exit 2";

pub(crate) async fn run(session: &mut Session<'_>) {
    session.apply(&pod("lines", LINES, &json!({}))).await;
    let never = json!({ "restartPolicy": "Never" });
    session.apply(&pod("ender", ENDS, &never)).await;
    let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
    session.wait_pod("ender", "to run", is_running).await;
    // Ends with the container.
    session.run(&["logs", "-f", "ender"]).await;
    session.run(&["logs", "-f", "--tail=1", "ender"]).await;
    let ready = ["wait", "--for=condition=Ready", "pod/lines"];
    session.run(&ready).await;
    for more in [
        &["lines"][..],
        &["lines", "--tail=3"],
        &["lines", "--tail=0"],
        &["lines", "--limit-bytes=9"],
        &["lines", "--since=1h", "--tail=2"],
        &["lines", "--since=1s", "--limit-bytes=0"],
        &["lines", "--since-time=2020-01-01T00:00:00Z", "--tail=1"],
        &["lines", "--since-time=2100-01-01T00:00:00Z"],
        &["lines", "--timestamps", "--tail=3"],
        &["lines", "--prefix", "--tail=2"],
        &["lines", "-c", "none"],
        &["lines", "--previous"],
        &["lines", "--tail=-5"],
        &["none"],
        &["web"],
        &["web", "--all-containers", "--prefix"],
        &["web", "-c", "prepare"],
        &["web", "-c", "side"],
        &["-l", "name=web", "--all-containers", "--prefix"],
    ] {
        // Containers have no order.
        let order = if more.contains(&"--all-containers") {
            LineOrder::Any
        } else {
            LineOrder::Kept
        };
        session.run_in(order, &[&["logs"], more].concat()).await;
    }
    // A follower sees what comes, and ends with the pod.
    let follow = ["logs", "-f", "--tail=2", "lines"];
    let mut followed = session.start(&follow);
    followed.wait_for("xxxx").await;
    session
        .run(&["delete", "pod", "lines", "--grace-period=1"])
        .await;
    let (output, code) = followed.end().await;
    let text = format!("{output}\nexit code {code:?}");
    session.record(&follow.join(" "), LineOrder::Kept, &text);
    session.run(&["delete", "pod", "ender"]).await;
}
