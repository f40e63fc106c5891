//! One trace per pod start: whole, across processes, in the supervisor's ring and at a collector.

use std::collections::BTreeSet;

use polylet_e2e::collector::Collector;
use polylet_e2e::{example, node_with, ok};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, NodeOptions, PodView};
use polylet_wire::supervisor::v1::{GetTraceResponse, Span};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_pod_start_is_one_trace() {
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
    let trace = whole(&node, &pod).await;
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
    // A probe may ask before the server listens; nothing else may go wrong.
    let mut spans = trace
        .spans
        .iter()
        .filter(|span| !span.name.starts_with("probe."));
    assert!(
        spans.all(|span| span.error.is_empty()),
        "{:#?}",
        trace.spans
    );
    parents_are_there(&trace.spans);
    independent_steps_overlap(&trace.spans);
    nothing_secret(&trace.spans);

    let ids = trace
        .spans
        .iter()
        .map(|span| span.span_id.clone())
        .collect();
    reaches(&collector, &trace.trace_id, &ids).await;

    let shown = ok(node.cli(&["trace", "web-node"]).await);
    let shown = String::from_utf8(shown.stdout).unwrap();
    for name in ["cri.RunPodSandbox", "status-reporter", "pod-config"] {
        assert!(shown.contains(name), "no {name} in:\n{shown}");
    }
    ok(node.remove());
}

/// Spans come in batches from each process.
async fn whole(node: &Node, pod: &PodView) -> GetTraceResponse {
    let look = || async {
        match node.trace(&pod.uid).await {
            Ok(trace) => {
                let services: BTreeSet<_> = trace
                    .spans
                    .iter()
                    .map(|span| span.service.clone())
                    .collect();
                let ends = services.contains("pod-config") && services.contains("status-reporter");
                if services.len() >= 7 && ends {
                    Look::Done(trace)
                } else {
                    Look::NotYet(format!("spans of {services:?}"))
                }
            }
            Err(error) => Look::NotYet(polylet_harness::error::report(&error)),
        }
    };
    ok(until("a trace across seven processes", look).await)
}

/// The same spans are at the collector.
async fn reaches(collector: &Collector, trace: &str, ids: &BTreeSet<String>) {
    let look = || async {
        let missing: Vec<_> = ids
            .difference(&collector.spans_of(trace))
            .cloned()
            .collect();
        if missing.is_empty() {
            Look::Done(())
        } else {
            Look::NotYet(format!("without {missing:?}"))
        }
    };
    ok(until("every span of the trace at the collector", look).await);
}

/// One root, and every other span's parent is in the trace.
fn parents_are_there(spans: &[Span]) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let roots: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id.is_empty())
        .collect();
    assert_eq!(roots.len(), 1, "{roots:#?}");
    for span in spans.iter().filter(|span| !span.parent_span_id.is_empty()) {
        assert!(
            ids.contains(span.parent_span_id.as_str()),
            "no parent for {span:?}"
        );
    }
}

/// Neither the volumes nor the look for the image wait for the sandbox.
fn independent_steps_overlap(spans: &[Span]) {
    let sandbox = spans.iter().find(|span| span.name == "cri.RunPodSandbox");
    let stands = sandbox.and_then(|span| span.end).unwrap();
    let stands = (stands.seconds, stands.nanos);
    for name in ["volume.mount", "sync.pull"] {
        let began = spans.iter().filter(|span| span.name == name);
        let began = began.filter_map(|span| span.start);
        let began = began.map(|began| (began.seconds, began.nanos)).min();
        assert!(
            began.is_some_and(|began| began < stands),
            "{name} began at {began:?}, the sandbox stood at {stands:?}"
        );
    }
}

fn nothing_secret(spans: &[Span]) {
    let text = format!("{spans:?}");
    assert!(!text.contains("correct horse"), "a secret is in a span");
}

fn uid(span: &Span) -> &str {
    span.attributes
        .get("k8s.pod.uid")
        .map_or("", String::as_str)
}
