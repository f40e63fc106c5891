//! The node: `get`, `describe`, its own API, `cordon`, `drain` and `uncordon`.

use polylet_e2e::RUNS;
use serde_json::json;

use crate::manifests::{pod, workload};
use crate::session::{LineOrder, Session};

pub(crate) async fn run(session: &mut Session<'_>) {
    session.run(&["get", "node", "NODE"]).await;
    session.run(&["get", "node", "NODE", "-o", "wide"]).await;
    session.run(&["get", "node", "NODE", "--show-labels"]).await;
    for path in [
        "healthz",
        "healthz?verbose",
        "logs/none",
        "containerLogs/NS/none/none",
    ] {
        let path = format!("/api/v1/nodes/NODE/proxy/{path}");
        session.run(&["get", "--raw", &path]).await;
    }
    session.apply(&workload("DaemonSet", "each")).await;
    let data = json!({ "volumes": [{ "name": "data", "emptyDir": {} }] });
    session.apply(&pod("single", RUNS, &data)).await;
    for what in ["pod/single", "pod/fixed-NODE"] {
        session
            .run(&["wait", "--for=condition=Ready", what, "--timeout=60s"])
            .await;
    }
    let status = ["rollout", "status", "daemonset/each", "--timeout=60s"];
    session.run_in(LineOrder::LastOnly, &status).await;
    session.describe_pod("fixed-NODE").await;
    session
        .run_in(LineOrder::AnyEvents, &["describe", "node", "NODE"])
        .await;
    drain(session).await;
}

async fn drain(session: &mut Session<'_>) {
    session.run(&["cordon", "NODE"]).await;
    session.run(&["get", "node", "NODE"]).await;
    session.run(&["cordon", "NODE"]).await;
    session
        .run_in(LineOrder::AnyWords, &["drain", "NODE"])
        .await;
    session
        .run_in(
            LineOrder::AnyWords,
            &[
                "drain",
                "NODE",
                "--ignore-daemonsets",
                "--force",
                "--delete-emptydir-data",
                "--timeout=60s",
            ],
        )
        .await;
    session
        .run_in(LineOrder::Any, &["get", "pods", "-o", "wide"])
        .await;
    session.run(&["uncordon", "NODE"]).await;
    let words = ["rollout", "status", "deployment/app", "--timeout=60s"];
    session.run_in(LineOrder::LastOnly, &words).await;
    session
        .run(&["delete", "deployment/app", "daemonset/each"])
        .await;
    // A mirror pod is created again.
    session.run(&["delete", "pod", "fixed-NODE", "--now"]).await;
    session
        .wait_pod(
            &format!("fixed-{}", session.node()),
            "to be Ready",
            polylet_harness::cluster::is_ready,
        )
        .await;
    session.run(&["get", "pod", "fixed-NODE"]).await;
}
