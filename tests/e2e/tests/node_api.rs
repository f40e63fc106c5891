//! The node API over HTTPS and its authorization.

use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node, ok};
use polylet_harness::http::{self, HttpResponse};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use serde_json::Value;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn node_api() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let pod = example(&node).await;
    let (_, healthz) = node.ports();
    assert_eq!(
        ok(http::get("127.0.0.1", healthz, "/healthz").await).body,
        "ok"
    );
    assert_eq!(get(&node, "/healthz").await.code(), 200);
    assert_eq!(get(&node, "/no-such-thing").await.code(), 404);
    steps
        .run(
            "unauthorized callers are rejected",
            unauthorized_callers_are_rejected(&node),
        )
        .await;
    steps.run("pods", pods(&node, &pod)).await;
    steps.run("stats", stats(&node, &pod)).await;
    let metrics = get(&node, "/metrics").await;
    assert!(
        metrics.code() == 200 && metrics.body.contains("# TYPE"),
        "{metrics:?}"
    );
    steps
        .run(
            "exemplars of a start's steps lead to its trace",
            exemplars_lead_to_traces(&mut node),
        )
        .await;
    let probes = get(&node, "/metrics/probes").await;
    let counted = "prober_probe_total{container=\"server\",";
    assert!(probes.body.contains(counted), "{probes:?}");
    steps.run("logs", logs(&node)).await;
    steps.finish();
    ok(node.remove());
}

async fn unauthorized_callers_are_rejected(node: &Node) {
    for path in [
        "/pods",
        "/metrics",
        "/containerLogs/default/web-node/server",
    ] {
        let tls = ok(node.pki().tls(true));
        // Rejected by a response or in the TLS handshake.
        if let Ok(answer) = http::get_tls(tls, node.ports().0, path).await {
            assert_eq!(answer.code(), 401, "{path}: {answer:?}");
        }
    }
}

/// What the supervisor has counted is served, and the traces that it names are those that the command line shows; also by
/// the next process of the node API.
async fn exemplars_lead_to_traces(node: &mut Node) {
    let text = exemplars(node).await;
    let plain = get(node, "/metrics").await.body;
    assert!(plain.contains("polylet_pod_start_step_seconds_sum"));
    assert!(!plain.contains("trace_id"), "{plain}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let listed = ok(node.cli(&["trace", "list", "--output", "json"]).await);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for id in trace_ids(&text) {
        assert!(listed.contains(id), "no {id} in {listed}");
        let shown = ok(node.cli(&["trace", id]).await);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("cri.RunPodSandbox"));
    }
    ok(node.kill("node-api").await);
    exemplars(node).await;
}

fn trace_ids(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    let buckets = lines.filter(|line| line.starts_with("polylet_pod_start_step_seconds_bucket"));
    buckets.filter_map(|line| line.split("# {trace_id=\"").nth(1)?.split('"').next())
}

/// The metrics, once they have exemplars.
async fn exemplars(node: &Node) -> String {
    let poll = || async {
        let tls = ok(node.pki().tls(false));
        match http::get_open_metrics(tls, node.ports().0, "/metrics").await {
            Ok(answer) if trace_ids(&answer.body).next().is_some() => Poll::Ready(answer.body),
            Ok(answer) => Poll::Pending(answer.status),
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    };
    ok(until("exemplars in /metrics", poll).await)
}

async fn pods(node: &Node, pod: &PodView) {
    let list = json(node, "/pods").await;
    assert_eq!(list["kind"], "PodList");
    let items = list["items"].as_array().unwrap();
    let found = items
        .iter()
        .find(|item| item["metadata"]["uid"] == pod.uid.as_str());
    let found = found.unwrap_or_else(|| panic!("no {} in {list}", pod.uid));
    assert_eq!(found["status"]["phase"], "Running");
    let running = json(node, "/runningpods/").await;
    let names: Vec<_> = running["items"].as_array().into_iter().flatten().collect();
    assert!(
        names
            .iter()
            .any(|item| item["metadata"]["name"] == "web-node"),
        "{running}"
    );
}

async fn stats(node: &Node, pod: &PodView) {
    let poll = || async {
        let summary = json(node, "/stats/summary").await;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let found = pods
            .into_iter()
            .find(|one| one["podRef"]["uid"] == pod.uid.as_str());
        match found {
            Some(found) if found["memory"]["workingSetBytes"].as_u64() > Some(0) => {
                Poll::Ready(summary)
            }
            _ => Poll::Pending(summary.to_string()),
        }
    };
    let summary = ok(until("the pod's memory in /stats/summary", poll).await);
    assert_eq!(summary["node"]["nodeName"], "node");
    assert!(
        summary["node"]["cpu"]["usageCoreNanoSeconds"].as_u64() > Some(0),
        "{summary}"
    );
}

async fn logs(node: &Node) {
    let path = "/containerLogs/default/web-node/server";
    let poll = || async {
        let lines = get(node, path).await.body.lines().count();
        if lines >= 3 {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{lines} lines"))
        }
    };
    ok(until("three lines of log", poll).await);
    let one = get(node, &format!("{path}?tailLines=1&timestamps=true")).await;
    assert_eq!(one.body.lines().count(), 1, "{one:?}");
    assert!(one.body.starts_with("20"), "{one:?}");
    let few = get(node, &format!("{path}?limitBytes=10")).await;
    assert_eq!(few.body.len(), 10, "{few:?}");
    for (path, code) in [
        ("/containerLogs/default/web-node/nobody", 404),
        ("/containerLogs/default/no-such-pod/server", 404),
        ("/containerLogs/default/web-node/server?previous=true", 400),
        ("/containerLogs/default/web-node/server?tailLines=-1", 422),
    ] {
        let answer = get(node, path).await;
        assert_eq!(answer.code(), code, "{path}: {answer:?}");
    }
}

async fn json(node: &Node, path: &str) -> Value {
    let answer = get(node, path).await;
    assert_eq!(answer.code(), 200, "{path}: {answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

async fn get(node: &Node, path: &str) -> HttpResponse {
    let tls = ok(node.pki().tls(false));
    ok(http::get_tls(tls, node.ports().0, path).await)
}
