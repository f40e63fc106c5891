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
    let node = node().await;
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
