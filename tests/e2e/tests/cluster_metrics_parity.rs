//! Parity of metrics with the real kubelet: both agents are scraped in the same situation, on one machine
//! and in one cluster. Each family that the kubelet serves has the same type and the same labels with
//! Polylet; `expected_differences` lists the exceptions with their reasons.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, cluster, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use serde_json::{Value, json};

#[path = "cluster_metrics_parity/expected_differences.rs"]
mod expected_differences;
#[path = "cluster_metrics_parity/families.rs"]
mod families;

use families::FamilyShape;

const ENDPOINTS: [&str; 4] = [
    "/metrics",
    "/metrics/cadvisor",
    "/metrics/resource",
    "/metrics/probes",
];

/// What an agent serves by endpoint, and the fields of its stats summary.
#[derive(Debug, Default)]
struct Scrape {
    families: BTreeMap<&'static str, BTreeMap<String, FamilyShape>>,
    summary: Vec<String>,
    duplicates: Vec<String>,
}

#[tokio::test]
#[ignore = "needs root, a container runtime, the programs of a cluster: cargo verify"]
async fn metrics_match_the_kubelet() {
    let cluster = cluster().await;
    let mut options = ok(cluster.node_options("node"));
    // Both are waited for until volumes and files were measured.
    options.kubelet["volumeStatsAggPeriod"] = "1s".into();
    let mut node = ok(Node::prepare(options, &|_| {}).await);
    let mut kubelet = ok(cluster.kubelet(&node));
    ok(kubelet.start());
    let mut steps = Steps::new();
    let expected = steps
        .require("the kubelet is scraped", scrape(&cluster, "kubelet"))
        .await;
    kubelet.stop(false);
    ok(node.up().await);
    let found = steps
        .require("Polylet is scraped", scrape(&cluster, "polylet"))
        .await;
    steps.finish();

    node.down();
    ok(node.remove());
    ok(cluster.remove());
    // Which families the kubelet serves depends on the machine, too.
    for unused in expected_differences::unused(&expected.families, &found.families) {
        eprintln!("{unused}");
    }
    let mut unexpected = Vec::new();
    for endpoint in ENDPOINTS {
        let (kubelet, polylet) = (&expected.families[endpoint], &found.families[endpoint]);
        unexpected.extend(expected_differences::unexpected(endpoint, kubelet, polylet));
    }
    let fields = expected.summary.iter();
    let missing = fields.filter(|field| !found.summary.contains(field));
    unexpected.extend(missing.map(|field| format!("/stats/summary: no {field}")));
    unexpected.extend(
        found
            .duplicates
            .iter()
            .map(|series| format!("twice: {series}")),
    );
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// Scrapes the agent after pods came, failed and went.
async fn scrape(cluster: &Cluster, agent: &'static str) -> Scrape {
    ok(cluster.wait_node_ready("node").await);
    ok(cluster.namespace(agent).await);
    let pods = format!("/api/v1/namespaces/{agent}/pods");
    for pod in situation() {
        ok(cluster.client().create(&pods, &pod).await);
    }
    for name in ["limited", "deleted"] {
        let path = format!("{pods}/{name}");
        ok(cluster
            .wait(&path, "to be Ready", polylet_harness::cluster::is_ready)
            .await);
    }
    let restarted = |pod: &Value| {
        pod.pointer("/status/containerStatuses/0/restartCount")
            .and_then(Value::as_u64)
            > Some(0)
    };
    ok(cluster
        .wait(&format!("{pods}/failing"), "to restart", restarted)
        .await);
    delete(cluster, &format!("{pods}/deleted")).await;
    let scrape = settled(cluster).await;
    for name in ["limited", "failing", "absent"] {
        delete(cluster, &format!("{pods}/{name}")).await;
    }
    scrape
}

async fn delete(cluster: &Cluster, path: &str) {
    ok(cluster.client().delete(path, &Value::Null).await);
    ok(cluster.wait_absent(path).await);
}

/// The scrape, once the families of three scrapes, some seconds apart, are the same: cAdvisor measures
/// a container some time after its start.
async fn settled(cluster: &Cluster) -> Scrape {
    let mut former: Vec<usize> = Vec::new();
    let mut scrape = Scrape::default();
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(6)).await;
        scrape = scrape_once(cluster).await;
        let size = scrape.families.values().map(BTreeMap::len).sum::<usize>();
        former.push(size + scrape.summary.len());
        if former.len() > 2
            && former
                .iter()
                .rev()
                .take(3)
                .all(|one| one == &former[former.len() - 1])
        {
            break;
        }
    }
    scrape
}

async fn scrape_once(cluster: &Cluster) -> Scrape {
    let mut scrape = Scrape::default();
    for endpoint in ENDPOINTS {
        let text = get(cluster, endpoint).await;
        scrape.duplicates.extend(families::duplicates(&text));
        scrape.families.insert(endpoint, families::parse(&text));
    }
    let summary = get(cluster, "/stats/summary").await;
    let summary: Value = serde_json::from_str(&summary).unwrap_or_default();
    scrape.summary = families::fields(&summary);
    scrape
}

/// A path of the node API, through the API server.
async fn get(cluster: &Cluster, path: &str) -> String {
    let path = format!("/api/v1/nodes/node/proxy{path}");
    ok(until(path.clone(), || async {
        match cluster.client().text(&path).await {
            Ok(text) => Poll::Ready(text),
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    })
    .await)
}

/// Pods with everything that a family is about.
fn situation() -> Vec<Value> {
    let limited = json!({
        "initContainers": [{ "name": "init", "image": "polylet-test:1", "command": ["sh", "-c", "exit 0"] }],
        "container": {
            "resources": {
                "requests": { "cpu": "50m", "memory": "16Mi" },
                "limits": { "cpu": "200m", "memory": "64Mi", "ephemeral-storage": "100Mi" },
            },
            "livenessProbe": { "exec": { "command": ["sh", "-c", "exit 0"] }, "periodSeconds": 1 },
            "readinessProbe": { "exec": { "command": ["sh", "-c", "exit 0"] }, "periodSeconds": 1 },
            "lifecycle": { "preStop": { "exec": { "command": ["sh", "-c", "exit 0"] } } },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        },
        "volumes": [{ "name": "data", "emptyDir": {} }],
    });
    let absent = json!({ "container": { "image": "localhost:1/absent:1" } });
    [
        ("limited", RUNS, limited),
        ("deleted", RUNS, json!({})),
        ("failing", "exit 1", json!({})),
        ("absent", RUNS, absent),
    ]
    .map(|(name, script, more)| {
        let mut pod: Value = serde_json::from_str(&pod(name, script, &more)).unwrap_or_default();
        pod["spec"]["nodeName"] = "node".into();
        pod
    })
    .into()
}
