//! The trace of a start leads to what others record of it: a real API server that traces, and a CSI driver.

use std::fs;

use polylet_e2e::collector::Collector;
use polylet_e2e::steps::Steps;
use polylet_e2e::traces::wait_ended;
use polylet_e2e::{RUNS, cluster_node, cluster_with, ok, pod};
use polylet_harness::cluster::{ClusterOptions, is_ready, pod_path};
use polylet_harness::csi::{NAME, TestCsiDriver};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Cluster, Node};
use polylet_wire::supervisor::v1::{GetTraceResponse, Span};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn api_server_and_csi_driver_know_the_trace() {
    let collector = Collector::start().await;
    let config = ok(tempfile::NamedTempFile::new());
    let endpoint = collector.endpoint();
    let text = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration",
        "endpoint": endpoint.trim_start_matches("http://"), "samplingRatePerMillion": 1_000_000 });
    ok(fs::write(config.path(), text.to_string()));
    let flag = format!("--tracing-config-file={}", config.path().display());
    let cluster = cluster_with(&ClusterOptions {
        api_server: vec![flag],
        ..ClusterOptions::default()
    })
    .await;
    let node = cluster_node(&cluster).await;
    let driver = ok(TestCsiDriver::new(
        &node.dirs().root,
        &cluster.scratch().join("disks"),
    ));
    let running = ok(driver.start());
    let mut steps = Steps::new();
    steps
        .run("a pod with a volume of the driver", start(&cluster))
        .await;
    let trace = steps
        .require("the start's trace", complete_trace(&node))
        .await;
    steps
        .run("the API server's span has a link to ours", async {
            let patch = named(&trace, "status.patch").remove(0);
            let poll = || async {
                let linked = collector.linked_spans_of(&trace.trace_id);
                match linked.contains(&patch.span_id) {
                    true => Poll::Ready(()),
                    false => Poll::Pending(format!("{linked:?} without {}", patch.span_id)),
                }
            };
            ok(until("the link", poll).await);
            let of = |key: &str| patch.attributes.get(key).map_or("", String::as_str);
            assert_eq!(of("http.request.method"), "PATCH");
            assert_eq!(of("http.response.status_code"), "200");
            assert_eq!(of("server.address"), "127.0.0.1");
            let url = format!("{}{PODS}/web/status", cluster.server());
            assert_eq!(of("url.full"), url);
            assert_eq!(of("polylet.audit_id").len(), 36);
        })
        .await;
    steps
        .run("the CSI driver's caller is our span", async {
            let publish = named(&trace, "csi.NodePublishVolume").remove(0);
            let expected = format!("00-{}-{}-", trace.trace_id, publish.span_id);
            let seen = driver.traceparents();
            let is_ours = |context: &String| context.starts_with(&expected);
            assert!(seen.iter().any(is_ours), "{seen:?} without {expected}");
            let of = |key: &str| publish.attributes.get(key).map_or("", String::as_str);
            assert_eq!(of("rpc.method"), "csi.v1.Node/NodePublishVolume");
            assert_eq!(of("rpc.response.status_code"), "OK");
            assert!(of("server.address").ends_with("csi.sock"));
            // Within the span of the volume.
            let parent = &publish.parent_span_id;
            let parents = trace.spans.iter().filter(|span| span.span_id == *parent);
            let names: Vec<_> = parents.map(|span| span.name.as_str()).collect();
            assert_eq!(names, ["volume.setup"]);
        })
        .await;
    steps
        .run("the requests of the deletion are in its trace", async {
            let path = pod_path("web");
            ok(cluster.client().delete(&path, &Value::Null).await);
            ok(cluster.wait_absent(&path).await);
            deletion_requests(&node).await;
        })
        .await;
    steps.finish();
    drop(running);
    ok(node.remove());
    ok(cluster.remove());
}

async fn start(cluster: &Cluster) {
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
        "metadata": { "name": NAME },
        "spec": { "attachRequired": false, "volumeLifecycleModes": ["Ephemeral"] } });
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    ok(cluster.client().create(drivers, &object).await);
    let more = json!({
        "volumes": [{ "name": "inline", "csi": { "driver": NAME } }],
        "container": { "volumeMounts": [{ "name": "inline", "mountPath": "/inline" }] },
    });
    let object: Value = ok(serde_json::from_str(&pod("web", RUNS, &more)));
    ok(cluster.client().create(PODS, &object).await);
    let path = pod_path("web");
    ok(cluster.wait(&path, "to be Ready", is_ready).await);
}

/// Waits for the spans of the two requests: the last status, which is patched while the rest is removed, and
/// the deletion of the object.
async fn deletion_requests(node: &Node) {
    let summary = wait_ended(node, "pod.delete", "removed", "web").await;
    let id = summary["traceId"].as_str().unwrap_or_default();
    let poll = || async {
        let trace = ok(node.trace(id).await);
        let counts = ["status.patch", "status.delete"].map(|name| named(&trace, name).len());
        match counts {
            [1, 1] => Poll::Ready(()),
            _ => Poll::Pending(format!("{counts:?}: {:#?}", trace.spans)),
        }
    };
    ok(until("the spans of both requests", poll).await);
}

fn named(trace: &GetTraceResponse, name: &str) -> Vec<Span> {
    let spans = trace.spans.iter().filter(|span| span.name == name);
    spans.cloned().collect()
}

/// Waits for the spans of the patch and of the driver's call, which processes export in batches.
async fn complete_trace(node: &Node) -> GetTraceResponse {
    let poll = || async {
        let trace = match node.trace("default/web").await {
            Ok(trace) => trace,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let wanted = ["status.patch", "csi.NodePublishVolume", "status.ready"];
        match wanted.iter().all(|name| !named(&trace, name).is_empty()) {
            true => Poll::Ready(trace),
            false => {
                let names = trace.spans.iter().map(|span| span.name.as_str());
                Poll::Pending(format!("{:?}", names.collect::<Vec<_>>()))
            }
        }
    };
    ok(until("the spans of the start", poll).await)
}
