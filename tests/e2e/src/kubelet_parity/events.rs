//! Events of pods as lines that do not depend on the run.

use std::time::{Duration, Instant};

use polylet_harness::Cluster;
use polylet_harness::wait::timeout;
use serde_json::Value;

use super::{normalize, patterns};
use crate::ok;

const EVENTS: &str = "/api/v1/namespaces/default/events";
/// Events are sent late and in bursts: after this time without a new one they are complete.
const QUIET: Duration = Duration::from_secs(2);

/// Deletes the events of earlier pods.
pub(super) async fn delete_all(cluster: &Cluster) {
    ok(cluster.client().delete(EVENTS, &Value::Null).await);
}

/// All events, once no more are coming.
pub(super) async fn all(cluster: &Cluster) -> Vec<Value> {
    let started = Instant::now();
    let mut last = list(cluster).await;
    let mut since = Instant::now();
    while since.elapsed() < QUIET && started.elapsed() < timeout() {
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

/// Distinct events of a pod: type, reason, source, field of the object, and message.
pub(super) fn pod_events(events: &[Value], pod: &Value) -> Vec<String> {
    let pod_events = |event: &&Value| {
        let object = &event["involvedObject"];
        object["kind"] == "Pod" && object["name"] == pod["metadata"]["name"]
    };
    let mut event_lines = Vec::new();
    for event in events.iter().filter(pod_events) {
        let line = line(event, pod);
        if !event_lines.contains(&line) {
            event_lines.push(line);
        }
    }
    event_lines.sort();
    event_lines
}

fn line(event: &Value, pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let object = &event["involvedObject"];
    let source = [
        &event["source"]["component"],
        &event["source"]["host"],
        &event["reportingComponent"],
        &event["reportingInstance"],
    ];
    let source = source.map(text).join("/");
    // A static pod's uid differs from its mirror pod's.
    let subject = match &object["uid"] {
        uid if *uid == pod["metadata"]["uid"] => "pod",
        uid if *uid == pod["metadata"]["annotations"]["kubernetes.io/config.hash"] => "source",
        _ => "another",
    };
    let message = normalize::plain(event["message"].as_str().unwrap_or_default(), pod);
    format!(
        "{} {} by {source} of {subject} {}: {}",
        text(&event["type"]),
        text(&event["reason"]),
        text(&object["fieldPath"]),
        patterns::blank(&message).trim_end(),
    )
}
