//! Traces that the node has recorded.

use polylet_harness::Node;
use polylet_harness::wait::{Poll, until};
use serde_json::Value;

use crate::ok;

/// Waits for a trace that has ended, by its root, its outcome and the name of its pod. Returns its summary.
///
/// # Panics
/// When there is none in time.
pub async fn wait_ended(node: &Node, root: &str, outcome: &str, pod: &str) -> Value {
    let list = [
        "trace",
        "list",
        "--root",
        root,
        "--outcome",
        outcome,
        "--output",
        "json",
    ];
    let poll = || async {
        let listed = ok(node.cli(&list).await);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let mut traces = listed["traces"].as_array().into_iter().flatten();
        match traces.find(|trace| trace["name"] == pod) {
            Some(trace) => Poll::Ready(trace.clone()),
            None => Poll::Pending(listed.to_string()),
        }
    };
    ok(until("an ended trace", poll).await)
}
