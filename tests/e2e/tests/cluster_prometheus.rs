//! A real Prometheus scrapes the node: what the usual rules, alerts and dashboards compute of a kubelet
//! has results with Polylet, too.

use std::collections::BTreeSet;

use polylet_e2e::collector::Collector;
use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster, ok, pod};
use polylet_harness::cluster::{Prometheus, is_ready};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

#[path = "cluster_prometheus/dashboard.rs"]
mod dashboard;
#[path = "cluster_prometheus/expressions.rs"]
mod expressions;

/// Scrapes until a rate has several points of everything.
const SCRAPES: f64 = 12.0;

/// Uses some processor time all the time: a container at rest is not throttled, and has no periods.
const BUSY: &str =
    "while true; do i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; sleep 0.05; done";

#[tokio::test]
#[ignore = "needs root, a container runtime, built services, the programs of a cluster, Debian's Prometheus: cargo verify"]
async fn rules_and_dashboards_have_results() {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    // The metrics of certificates exist with their rotation.
    options.kubelet["rotateCertificates"] = true.into();
    // Spans are counted when they are exported.
    let collector = Collector::start().await;
    let endpoint = collector.endpoint();
    options.kubelet["tracing"] = json!({
        "endpoint": endpoint.trim_start_matches("http://"), "samplingRatePerMillion": 1_000_000,
    });
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));
    ok(kubelet.start());
    let mut steps = Steps::new();
    let (expected, _) = steps
        .require(
            "Prometheus scrapes the kubelet",
            results(&cluster, "kubelet"),
        )
        .await;
    kubelet.stop(false);
    ok(node.up().await);
    let (found, prometheus) = steps
        .require("Prometheus scrapes Polylet", results(&cluster, "polylet"))
        .await;
    steps
        .run(
            "the dashboard has results",
            dashboard::has_results(&prometheus),
        )
        .await;
    steps
        .run(
            "exemplars lead to traces",
            dashboard::exemplars_lead_to_traces(&prometheus, &node),
        )
        .await;
    drop(prometheus);
    steps.finish();

    node.down();
    ok(node.remove());
    ok(cluster.remove());
    let names: BTreeSet<String> = expressions::all()
        .map(|(name, _)| name.to_owned())
        .collect();
    // The machine, and what is not configured, decide about these.
    let neither = names
        .difference(&expected)
        .filter(|name| !found.contains(*name));
    println!("without results on both: {:?}", neither.collect::<Vec<_>>());
    let allowed = |name: &&String| !expressions::MISSING.iter().any(|(known, _)| known == name);
    let missing: Vec<_> = expected.difference(&found).filter(allowed).collect();
    assert!(missing.is_empty(), "without results: {missing:?}");
    assert!(expected.len() > 30, "the kubelet has only {expected:?}");
}

/// The names of the expressions that have results under an agent, and the Prometheus that has scraped it.
async fn results(cluster: &Cluster, agent: &'static str) -> (BTreeSet<String>, Prometheus) {
    ok(cluster.wait_node_ready("node").await);
    ok(cluster.namespace(agent).await);
    let prometheus = ok(cluster
        .prometheus(agent, "node", &expressions::groups())
        .await);
    // Some series begin with the first start or failure that they count: a rate sees them only if
    // they were there before a change.
    for round in ["first", "second"] {
        let pods = format!("/api/v1/namespaces/{agent}/pods");
        create(cluster, &pods, &format!("{round}-runs"), BUSY).await;
        create(cluster, &pods, &format!("{round}-fails"), "exit 1").await;
        let path = format!("{pods}/{round}-runs");
        ok(cluster.wait(&path, "to be Ready", is_ready).await);
        scraped(&prometheus).await;
    }
    let mut found = BTreeSet::new();
    for (name, expression) in expressions::all() {
        let results = ok(prometheus.query(expression).await);
        // A quotient of nothing is no number.
        let is_number = |one: &Value| one["value"][1] != "NaN";
        if results.iter().any(is_number) {
            found.insert(name.to_owned());
        }
    }
    for round in ["first", "second"] {
        for kind in ["runs", "fails"] {
            let path = format!("/api/v1/namespaces/{agent}/pods/{round}-{kind}");
            let now = json!({ "gracePeriodSeconds": 0 });
            ok(cluster.client().delete(&path, &now).await);
            ok(cluster.wait_absent(&path).await);
        }
    }
    (found, prometheus)
}

async fn create(cluster: &Cluster, pods: &str, name: &str, script: &str) {
    let more = json!({
        "container": {
            "resources": { "limits": { "cpu": "200m", "memory": "64Mi" } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        },
        "volumes": [{ "name": "data", "emptyDir": {} }],
    });
    let mut pod: Value = ok(serde_json::from_str(&pod(name, script, &more)));
    pod["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(pods, &pod).await);
}

/// Waits for the next scrapes.
async fn scraped(prometheus: &Prometheus) {
    let count = async || {
        let scrapes = "sum(count_over_time(up{job=\"cadvisor\"}[1h]))";
        let results = ok(prometheus.query(scrapes).await);
        let value = results.first().and_then(|one| one["value"][1].as_str());
        value
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or_default()
    };
    let begun = count().await;
    ok(until("scrapes", || async {
        let now = count().await;
        if now >= begun + SCRAPES {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{} scrapes", now - begun))
        }
    })
    .await);
}
