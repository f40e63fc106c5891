//! What people are told of pods: events, as lines that do not depend on the run.

use std::time::{Duration, Instant};

use polylet_harness::Cluster;
use polylet_harness::wait::patience;
use serde_json::Value;

use super::{lines, words};
use crate::ok;

const EVENTS: &str = "/api/v1/namespaces/default/events";
/// Events come late, and in bursts: after so long without any there are no more.
const QUIET: Duration = Duration::from_secs(2);

/// What was told before is not told of those who come.
pub(super) async fn forget(cluster: &Cluster) {
    ok(cluster.client().delete(EVENTS, &Value::Null).await);
}

/// Everything that was told, once nobody tells more.
pub(super) async fn all(cluster: &Cluster) -> Vec<Value> {
    let begun = Instant::now();
    let mut last = list(cluster).await;
    let mut since = Instant::now();
    while since.elapsed() < QUIET && begun.elapsed() < patience() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = list(cluster).await;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

async fn list(cluster: &Cluster) -> Vec<Value> {
    let mut list = ok(cluster.client().get(EVENTS).await).unwrap_or_default();
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// Each thing that was told of a pod, once: how grave it is, its reason, who tells it, of what in
/// which object, and in which words.
pub(super) fn of_pod(events: &[Value], pod: &Value) -> Vec<String> {
    let of_pod = |event: &&Value| {
        let about = &event["involvedObject"];
        about["kind"] == "Pod" && about["name"] == pod["metadata"]["name"]
    };
    let mut told = Vec::new();
    for event in events.iter().filter(of_pod) {
        let line = line(event, pod);
        if !told.contains(&line) {
            told.push(line);
        }
    }
    told.sort();
    told
}

fn line(event: &Value, pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let about = &event["involvedObject"];
    let by = [
        &event["source"]["component"],
        &event["source"]["host"],
        &event["reportingComponent"],
        &event["reportingInstance"],
    ];
    let by = by.map(text).join("/");
    // A static pod has an identity of its own, which its mirror has not.
    let whose = match &about["uid"] {
        uid if *uid == pod["metadata"]["uid"] => "pod",
        uid if *uid == pod["metadata"]["annotations"]["kubernetes.io/config.hash"] => "source",
        _ => "another",
    };
    let message = lines::plain(event["message"].as_str().unwrap_or_default(), pod);
    format!(
        "{} {} by {by} of {whose} {}: {}",
        text(&event["type"]),
        text(&event["reason"]),
        text(&about["fieldPath"]),
        words::blank(&message).trim_end(),
    )
}
