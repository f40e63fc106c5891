//! One complete trace per pod start across processes, in the supervisor's ring buffer and at a
//! collector.

use std::collections::BTreeSet;

use polylet_e2e::collector::Collector;
use polylet_e2e::steps::Steps;
use polylet_e2e::traces::wait_ended;
use polylet_e2e::{EXAMPLE, RUNS, example, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Flavour, Node, NodeOptions, PodView, machine};
use polylet_wire::supervisor::v1::{GetTraceResponse, Span};
use prost::Message;
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pod_start_is_one_trace() {
    let collector = Collector::start().await;
    let env = vec![(
        "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
        collector.endpoint(),
    )];
    let node = node_with(NodeOptions {
        env,
        ..NodeOptions::default()
    })
    .await;
    let pod = example(&node).await;
    let mut steps = Steps::new();
    let trace = steps
        .require("the trace has all spans", wait_complete(&node, &pod))
        .await;
    steps
        .run("the trace is complete and consistent", async {
            let names: BTreeSet<&str> = trace.spans.iter().map(|span| span.name.as_str()).collect();
            for name in [
                "cri.RunPodSandbox",
                "cri.CreateContainer",
                "cri.StartContainer",
            ] {
                assert!(names.contains(name), "no {name} in {names:?}");
            }
            for span in trace
                .spans
                .iter()
                .filter(|span| span.name.starts_with("cri."))
            {
                assert_eq!(uid(span), pod.uid, "{span:?}");
            }
            // A probe may run before the server listens; no other span may fail.
            let mut spans = trace
                .spans
                .iter()
                .filter(|span| !span.name.starts_with("probe."));
            assert!(
                spans.all(|span| span.error.is_empty()),
                "{:#?}",
                trace.spans
            );
            parents_exist(&trace.spans);
            independent_steps_overlap(&trace.spans);
            no_secrets(&trace.spans);
        })
        .await;
    steps
        .run("the collector receives the same spans", async {
            let ids = trace
                .spans
                .iter()
                .map(|span| span.span_id.clone())
                .collect();
            wait_for_collector(&collector, &trace.trace_id, &ids).await;
        })
        .await;
    steps
        .run("the CLI shows the trace", async {
            let shown = ok(node.cli(&["trace", "web-node"]).await);
            let shown = String::from_utf8(shown.stdout).unwrap();
            for name in ["cri.RunPodSandbox", "status-reporter", "pod-config"] {
                assert!(shown.contains(name), "no {name} in:\n{shown}");
            }
        })
        .await;
    steps
        .run("the start of a plain pod has few spans", plain_start(&node))
        .await;
    steps
        .run("the deletion ends with the pod", async {
            ok(node.take(EXAMPLE[2].0));
            wait_removed(&node).await;
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// Waits for the trace of a deletion that has ended.
async fn wait_removed(node: &Node) {
    wait_ended(node, "pod.delete", "removed", "web-node").await;
}

/// A bound for what tracing costs; processor time is measured by the benchmark.
async fn plain_start(node: &Node) {
    const MAX_SPANS: usize = 60;
    const MAX_BYTES: usize = 20 << 10;
    ok(node.put("plain.yaml", &pod("plain", RUNS, &Value::Null)));
    let summary = wait_ended(node, "pod.start", "ready", "plain-node").await;
    assert_eq!(summary["shape"], "1 container");
    let trace = ok(node.trace("default/plain-node").await);
    let (spans, bytes) = (trace.spans.len(), trace.encoded_len());
    println!("{spans} spans, {bytes} bytes");
    assert!(
        spans <= MAX_SPANS && bytes <= MAX_BYTES,
        "{:#?}",
        trace.spans
    );
    let root = trace.spans.iter().find(|span| span.name == "pod.start");
    let attributes = &root.unwrap().attributes;
    let of = |key: &str| attributes.get(key).map_or("", String::as_str);
    assert_eq!(of("container.runtime.name"), "containerd");
    assert!(!of("container.runtime.version").is_empty());
    assert!(!of("polylet.kernel.version").is_empty());
    assert!(of("polylet.version.sync-coordinator").starts_with("0.1.0"));
    assert_eq!(of("polylet.pod.containers"), "1");
    assert_eq!(of("polylet.shape"), "1 container");
    let by_version = ok(node.cli(&["trace", "top", "--by", "version"]).await);
    let by_version = String::from_utf8(by_version.stdout).unwrap();
    assert!(
        by_version.contains("(all versions are the same)"),
        "{by_version}"
    );
}

/// containerd's spans of a start, which it exports to the node.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn spans_of_the_runtime_are_part_of_the_trace() {
    if Flavour::from_env() != Flavour::V2 {
        // containerd 1.6 has no server spans.
        return;
    }
    let address = format!("127.0.0.1:{}", ok(machine::free_port()));
    let outside = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut node = node_with(NodeOptions {
        polylet: json!({ "tracing": { "receive": address } }),
        ..NodeOptions::default()
    })
    .await;
    // With the SDK's own delay: its spans come seconds after the start has ended.
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()),
    ];
    node.containerd.env = variables
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    ok(node.containerd.restart().await);
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "tracing.k8s.io/traceparent": outside } },
        "spec": { "containers": [{
            "name": "web", "image": "polylet-test:1", "imagePullPolicy": "Never", "command": ["sleep", "3600"],
        }] },
    });
    ok(node.put("web.yaml", &manifest.to_string()));
    let poll = || async {
        let trace = match node.trace("default/web-node").await {
            Ok(trace) => trace,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        let ours = trace
            .spans
            .iter()
            .find(|span| span.name == "cri.RunPodSandbox");
        let id = ours.map(|span| span.span_id.clone()).unwrap_or_default();
        let theirs = trace
            .spans
            .iter()
            .find(|span| span.service == "containerd" && span.parent_span_id == id);
        match theirs {
            Some(theirs) => Poll::Ready((theirs.clone(), trace)),
            None => Poll::Pending(format!(
                "{} spans, none of containerd's below {id}",
                trace.spans.len()
            )),
        }
    };
    let (theirs, trace) = ok(until("containerd's span of the sandbox", poll).await);
    assert!(theirs.name.contains("RunPodSandbox"), "{theirs:?}");
    let root = trace
        .spans
        .iter()
        .find(|span| span.parent_span_id.is_empty())
        .unwrap();
    let link = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
    assert!(root.links.iter().any(|known| known == link), "{root:?}");
    let shown = ok(node.cli(&["trace", "web-node"]).await);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let on_path = |line: &str| line.starts_with('*') && line.contains(" containerd ");
    assert!(
        shown.lines().any(on_path),
        "the path leads into the runtime:\n{shown}"
    );
    // They came after the start had been summed up.
    let poll = || async {
        let top = ok(node.cli(&["trace", "top", "--by", "service"]).await);
        let top = String::from_utf8(top.stdout).unwrap();
        match top.lines().any(|line| line.starts_with("containerd ")) {
            true => Poll::Ready(()),
            false => Poll::Pending(top),
        }
    };
    ok(until("the runtime's time in the sum of starts", poll).await);
    ok(node.remove());
}

/// Waits for all spans, which each process exports in batches.
async fn wait_complete(node: &Node, pod: &PodView) -> GetTraceResponse {
    let poll = || async {
        match node.trace(&pod.uid).await {
            Ok(trace) => {
                let services: BTreeSet<_> = trace
                    .spans
                    .iter()
                    .map(|span| span.service.clone())
                    .collect();
                let ends = services.contains("pod-config") && services.contains("status-reporter");
                let mut roots = trace.spans.iter();
                let root = roots.find(|span| span.parent_span_id.is_empty());
                let ends = ends && root.is_some_and(|root| outcome(root) == "ready");
                // Those of the callee may come before those of its caller.
                if services.len() >= 8 && ends && orphan(&trace.spans).is_none() {
                    Poll::Ready(trace)
                } else {
                    Poll::Pending(format!("spans of {services:?} below {root:?}"))
                }
            }
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    };
    ok(until("a trace across seven processes", poll).await)
}

/// Waits until the collector has received the same spans.
async fn wait_for_collector(collector: &Collector, trace: &str, ids: &BTreeSet<String>) {
    let poll = || async {
        let missing: Vec<_> = ids
            .difference(&collector.spans_of(trace))
            .cloned()
            .collect();
        if missing.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("without {missing:?}"))
        }
    };
    ok(until("every span of the trace at the collector", poll).await);
}

/// Checks that there is one root and that every parent is in the trace.
fn parents_exist(spans: &[Span]) {
    let roots: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id.is_empty())
        .collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    assert_eq!(roots[0].name, "pod.start");
    assert_eq!(orphan(spans), None, "it has no parent");
}

/// A span whose parent is missing.
fn orphan(spans: &[Span]) -> Option<&Span> {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let mut children = spans.iter().filter(|span| !span.parent_span_id.is_empty());
    children.find(|span| !ids.contains(span.parent_span_id.as_str()))
}

/// Volumes and image pulls do not wait for the sandbox.
fn independent_steps_overlap(spans: &[Span]) {
    let sandbox = spans.iter().find(|span| span.name == "cri.RunPodSandbox");
    let sandbox_end = sandbox.and_then(|span| span.end).unwrap();
    let sandbox_end = (sandbox_end.seconds, sandbox_end.nanos);
    for name in ["volume.mount", "sync.pull"] {
        let began = spans.iter().filter(|span| span.name == name);
        let began = began.filter_map(|span| span.start);
        let began = began.map(|began| (began.seconds, began.nanos)).min();
        assert!(
            began.is_some_and(|began| began < sandbox_end),
            "{name} started at {began:?}, the sandbox was ready at {sandbox_end:?}"
        );
    }
}

fn no_secrets(spans: &[Span]) {
    let text = format!("{spans:?}");
    assert!(!text.contains("correct horse"), "a secret is in a span");
}

fn outcome(span: &Span) -> &str {
    span.attributes
        .get("polylet.outcome")
        .map_or("", String::as_str)
}

fn uid(span: &Span) -> &str {
    span.attributes
        .get("k8s.pod.uid")
        .map_or("", String::as_str)
}
