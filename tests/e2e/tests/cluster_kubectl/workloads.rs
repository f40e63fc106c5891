//! A Deployment and its rollouts.

use crate::manifests::workload;
use crate::session::{LineOrder, Session};

pub(crate) async fn run(session: &mut Session<'_>) {
    session.apply(&workload("Deployment", "app")).await;
    rolled_out(session).await;
    session.run(&["get", "deployment", "app"]).await;
    session
        .run_in(
            LineOrder::Any,
            &["get", "pods", "-l", "app=app", "-o", "wide"],
        )
        .await;
    session.run(&["rollout", "restart", "deployment/app"]).await;
    rolled_out(session).await;
    session.run(&["rollout", "history", "deployment/app"]).await;
    session.run(&["rollout", "undo", "deployment/app"]).await;
    rolled_out(session).await;
    session
        .run(&["exec", "deployment/app", "--", "echo", "in one of them"])
        .await;
    session
        .run(&["scale", "deployment/app", "--replicas=1"])
        .await;
    // The others have ended.
    let pods = "pods?labelSelector=app=app";
    session
        .wait_list(pods, "to be one", |count| count == 1)
        .await;
    let available = "--for=jsonpath={.status.availableReplicas}=1";
    session.run(&["wait", available, "deployment/app"]).await;
    session.run(&["get", "deployment", "app"]).await;
    session
        .run_in(LineOrder::Any, &["get", "pods", "-l", "app=app"])
        .await;
}

async fn rolled_out(session: &mut Session<'_>) {
    let words = ["rollout", "status", "deployment/app", "--timeout=60s"];
    session.run_in(LineOrder::LastOnly, &words).await;
}
