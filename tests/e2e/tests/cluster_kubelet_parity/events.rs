//! Events, as lines.

use std::time::Instant;

use polylet_e2e::kubelet_parity::patterns::matches;
use polylet_e2e::ok;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::cases::{Case, How};
use super::shape::{Lines, blank};

/// Runs all cases. Events that do not come in time are differences.
pub(crate) async fn run_cases(cluster: &Cluster, node: &Node, cases: &[Case], namespace: &str) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    for case in cases {
        if case.how == How::Static {
            let mut pod = case.pod.clone();
            pod["metadata"]["namespace"] = namespace.into();
            ok(node.put(&format!("{}.yaml", case.name), &pod.to_string()));
        } else {
            ok(cluster.client().create(&pods, &case.pod).await);
        }
    }
    let started = Instant::now();
    wait(cluster, cases, namespace, |case| case.waits_for).await;
    eprintln!("{namespace}: begun after {:?}", started.elapsed());
    for case in cases {
        end(cluster, node, case, &pods).await;
    }
    for case in cases {
        ok(cluster
            .wait_absent(&format!("{pods}/{}", case.object()))
            .await);
    }
    wait(cluster, cases, namespace, |case| case.ends_with).await;
    eprintln!("{namespace}: ended after {:?}", started.elapsed());
}

/// Events of a namespace's pods.
pub(crate) async fn pod_events(cluster: &Cluster, namespace: &str) -> Lines {
    lines(&all(cluster, namespace).await)
}

async fn end(cluster: &Cluster, node: &Node, case: &Case, pods: &str) {
    let path = format!("{pods}/{}", case.name);
    match case.how {
        How::Static => ok(node.take(&format!("{}.yaml", case.name))),
        How::Deleted => drop(ok(cluster.client().delete(&path, &Value::Null).await)),
        How::Evicted => {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": case.name },
            });
            let path = format!("{path}/eviction");
            ok(cluster.client().create(&path, &eviction).await);
        }
    }
}

/// Waits for the events of each case.
async fn wait(
    cluster: &Cluster,
    cases: &[Case],
    namespace: &str,
    what: impl Fn(&Case) -> &'static [&'static str],
) {
    let all_reported = until(format!("the events of {namespace}"), || async {
        let reported = all(cluster, namespace).await;
        let expected = cases
            .iter()
            .flat_map(|case| what(case).iter().map(move |expected| (case, expected)));
        let missing = expected.filter(|(case, expected)| !is_reported(&reported, case, expected));
        let missing = missing.map(|(case, expected)| format!("{} {expected}", case.name));
        match missing.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => Poll::Ready(()),
            missing => Poll::Pending(missing),
        }
    });
    if let Err(late) = all_reported.await {
        eprintln!("{late}");
    }
}

/// Whether the pod of a case has an event: its reason, how often (`BackOff x2`), or a pattern of its message
/// (`FailedMount: *absent*`).
fn is_reported(events: &[Value], case: &Case, expected: &str) -> bool {
    let (expected, message) = expected.split_once(": ").unwrap_or((expected, "*"));
    let (reason, count) = expected.split_once(" x").unwrap_or((expected, "1"));
    let of_case = |event: &&Value| {
        event["involvedObject"]["name"] == case.object()
            && event["reason"] == reason
            && matches(event["message"].as_str().unwrap_or_default(), message)
    };
    let counts = events.iter().filter(of_case);
    let counts = counts.map(|event| event["count"].as_u64().unwrap_or(1));
    counts.sum::<u64>() >= count.parse().unwrap_or(1)
}

/// Events of the node itself.
pub(crate) async fn node_events(cluster: &Cluster) -> Lines {
    let all = all(cluster, "default").await;
    let node_events: Vec<_> = all
        .into_iter()
        .filter(|event| event["involvedObject"]["kind"] == "Node")
        // The kubelet tells at each start of what the kernel's log still has, of other tests, too.
        .filter(|event| event["reason"] != "SystemOOM")
        .collect();
    lines(&node_events)
}

/// All events of node agents.
async fn all(cluster: &Cluster, namespace: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let list = ok(cluster.client().get(&path).await).unwrap_or_default();
    let mut all = list["items"].as_array().cloned().unwrap_or_default();
    all.retain(|event| event["source"]["component"] == "kubelet");
    all
}

fn lines(events: &[Value]) -> Lines {
    let mut lines = Lines::new();
    for event in events {
        let involved = &event["involvedObject"];
        let text = |value: &Value| blank(value.as_str().unwrap_or_default());
        let head = format!(
            "event {} {} {} {} {}: {}",
            text(&involved["kind"]),
            text(&involved["name"]),
            text(&event["type"]),
            text(&event["reason"]),
            text(&involved["fieldPath"]),
            text(&event["message"]).trim_end(),
        );
        lines.insert(head);
        // All events have the same form.
        let mut form = event.clone();
        for field in ["message", "reason", "type", "count"] {
            form[field] = Value::Null;
        }
        for field in ["name", "fieldPath", "resourceVersion", "uid"] {
            form["involvedObject"][field] = form["involvedObject"][field].is_string().into();
        }
        form["metadata"] = event["metadata"]["annotations"].clone();
        let kind = text(&involved["kind"]);
        for line in super::shape::object_lines(&format!("form of events of a {kind}"), form) {
            lines.insert(line);
        }
        for entry in event["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
        {
            lines.insert(format!(
                "events are written by {} by {}",
                entry["manager"], entry["operation"]
            ));
        }
    }
    lines
}
