//! Events, as lines.

use std::time::{Duration, Instant};

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

use super::cases::{Case, How};
use super::shape::{Lines, blank};

/// Time for what a case waits for; what has not come by then is a difference.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets all cases happen, and tells what people saw of them.
pub(crate) async fn of_cases(
    cluster: &Cluster,
    node: &Node,
    cases: &[Case],
    namespace: &str,
) -> Lines {
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
    let begun = Instant::now();
    let late = wait(cluster, cases, namespace, |case| case.waits_for).await;
    eprintln!("{namespace}: {:?}, late: {late:?}", begun.elapsed());
    for case in cases {
        end(cluster, node, case, &pods).await;
    }
    for case in cases {
        ok(cluster
            .wait_absent(&format!("{pods}/{}", case.object()))
            .await);
    }
    let late = wait(cluster, cases, namespace, |case| case.ends_with).await;
    eprintln!("{namespace}: {:?}, late: {late:?}", begun.elapsed());
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

/// Waits until each case was told of as it says; tells what has not come.
async fn wait(
    cluster: &Cluster,
    cases: &[Case],
    namespace: &str,
    what: impl Fn(&Case) -> &'static [&'static str],
) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let told = all(cluster, namespace).await;
        let mut open = Vec::new();
        for case in cases {
            let of_case = |event: &&Value| event["involvedObject"]["name"] == case.object();
            for wanted in what(case) {
                let (reason, count) = wanted.split_once(" x").unwrap_or((wanted, "1"));
                let count: u64 = count.parse().unwrap_or(1);
                let seen = told
                    .iter()
                    .filter(of_case)
                    .filter(|e| e["reason"] == reason);
                let seen: u64 = seen.map(|event| event["count"].as_u64().unwrap_or(1)).sum();
                if seen < count {
                    open.push(format!("{} {wanted}", case.name));
                }
            }
        }
        if open.is_empty() || begun.elapsed() > PATIENCE {
            return open;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What was told of the node itself.
pub(crate) async fn of_node(cluster: &Cluster) -> Lines {
    let all = all(cluster, "default").await;
    let of_node: Vec<_> = all
        .into_iter()
        .filter(|event| event["involvedObject"]["kind"] == "Node")
        .collect();
    lines(&of_node)
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
        let about = &event["involvedObject"];
        let text = |value: &Value| blank(value.as_str().unwrap_or_default());
        let head = format!(
            "event {} {} {} {} {}: {}",
            text(&about["kind"]),
            text(&about["name"]),
            text(&event["type"]),
            text(&event["reason"]),
            text(&about["fieldPath"]),
            text(&event["message"]).trim_end(),
        );
        lines.insert(head);
        // Whatever it says, events have one form.
        let mut form = event.clone();
        for field in ["message", "reason", "type", "count"] {
            form[field] = Value::Null;
        }
        for field in ["name", "fieldPath", "resourceVersion", "uid"] {
            form["involvedObject"][field] = form["involvedObject"][field].is_string().into();
        }
        form["metadata"] = event["metadata"]["annotations"].clone();
        let kind = text(&about["kind"]);
        for line in super::shape::of_object(&format!("form of events of a {kind}"), form) {
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
