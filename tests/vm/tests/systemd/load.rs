//! Pods beyond the few of each class: those that run all the time, and those that come and go.

use std::pin::pin;

use polylet_harness::cluster::pod_path;
use polylet_vm::ok;
use serde_json::{Value, json};

use crate::node::SystemdNode;
use crate::pods;

/// Four, or as many as `POLYLET_TEST_PODS` says.
pub(crate) fn count() -> u32 {
    let count = std::env::var("POLYLET_TEST_PODS").ok();
    count.and_then(|text| text.parse().ok()).unwrap_or(4)
}

fn names() -> impl Iterator<Item = String> {
    (0..count()).map(|number| format!("load-{number}"))
}

/// Creates the pods that run all the time, and waits until they are Ready.
pub(crate) async fn create(node: &SystemdNode) {
    for name in names() {
        node.create("pods", &pods::serving(&name)).await;
    }
    for name in names() {
        node.ready(&name).await;
    }
}

/// Deletes them: a reboot would start them all again.
pub(crate) async fn delete(node: &SystemdNode) {
    for name in names() {
        let path = pod_path(&name);
        ok(node.cluster.client().delete(&path, &Value::Null).await);
    }
    for name in names() {
        node.gone(&name).await;
    }
}

/// Starts and deletes pods, one after the other, until `work` ends. One more restarts all the time.
pub(crate) async fn churn_during(node: &SystemdNode, work: impl Future<Output = ()>) {
    node.create("pods", &pods::restarting()).await;
    let mut work = pin!(work);
    let mut churned = 0;
    loop {
        let name = format!("churn-{churned}");
        tokio::select! {
            () = start_and_delete(node, &name) => churned += 1,
            () = &mut work => {
                // Unless it was about to be created, or just gone.
                if !node.pod(&name).await.is_null() {
                    node.delete(&name).await;
                }
                break;
            }
        }
    }
    node.delete("restarting").await;
    println!("  {churned} pods started and deleted meanwhile");
    assert!(churned > 0);
}

/// A start may be delayed, but neither fail nor be done twice.
async fn start_and_delete(node: &SystemdNode, name: &str) {
    node.create("pods", &pods::serving(name)).await;
    let pod = node.ready(name).await;
    let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
    assert_eq!(*restarts, json!(0), "{name}: {}", pod["status"]);
    node.delete(name).await;
}
