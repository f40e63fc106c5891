//! Files read by programs and libraries that others have written, so that a misreading of a format's specification shows.

use std::collections::BTreeSet;
use std::process::Command;

use inferno::flamegraph::{self, Options};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, TracesData};
use serde_json::Value;

use super::tests::{hostile, pod_start};
use super::{folded, otlp_json, perfetto};
use crate::span::SpanRecord;
use crate::trace::Trace;

fn otlp(trace: &Trace) -> Vec<ResourceSpans> {
    let mut bytes = Vec::new();
    otlp_json::write(std::slice::from_ref(trace), &mut bytes).unwrap();
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let read = |line| serde_json::from_slice::<TracesData>(line).unwrap();
    lines.flat_map(|line| read(line).resource_spans).collect()
}

fn text(resource: &ResourceSpans, key: &str) -> Option<String> {
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// OpenTelemetry's own types for Rust, with their own JSON.
#[test]
fn otlp_json_is_read_by_opentelemetry() {
    let trace = pod_start();
    let resources = otlp(&trace);
    let mut found = BTreeSet::new();
    for resource in &resources {
        let service = text(resource, "service.name").unwrap();
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let is_same = |one: &&SpanRecord| one.span[..] == span.span_id[..];
            let expected = trace.spans.iter().find(is_same).unwrap();
            assert_eq!(span.trace_id, trace.id);
            let parent = expected.parent.map(Vec::from).unwrap_or_default();
            assert_eq!(span.parent_span_id, parent);
            assert_eq!(service, format!("polylet-{}", expected.service));
            assert_eq!(span.name, expected.name);
            let nanos = [span.start_time_unix_nano, span.end_time_unix_nano].map(i128::from);
            let times = [expected.start, expected.end].map(jiff::Timestamp::as_nanosecond);
            assert_eq!(nanos, times);
            assert!(SpanKind::try_from(span.kind).is_ok());
            let code = span.status.as_ref().map(|status| status.code());
            let failed = code == Some(StatusCode::Error);
            assert_eq!(failed, expected.error.is_some());
            assert_eq!(span.links.len(), expected.links.len());
            found.insert(expected.span);
        }
    }
    assert_eq!(found.len(), trace.spans.len());
}

#[test]
fn hostile_texts_are_the_same_to_opentelemetry() {
    let trace = hostile();
    let resources = otlp(&trace);
    let spans = resources.iter().flat_map(|resource| &resource.scope_spans);
    let names: BTreeSet<_> = spans
        .flat_map(|scope| &scope.spans)
        .map(|span| span.name.clone())
        .collect();
    let expected: BTreeSet<_> = trace.spans.iter().map(|span| span.name.clone()).collect();
    assert_eq!(names, expected);
}

/// inferno, the usual maker of flame graphs in Rust.
#[test]
fn folded_stacks_are_read_by_inferno() {
    for trace in [pod_start(), hostile()] {
        let mut bytes = Vec::new();
        folded::write(std::slice::from_ref(&trace), &mut bytes).unwrap();
        let stacks = String::from_utf8(bytes).unwrap();
        let mut options = Options::default();
        "micros".clone_into(&mut options.count_name);
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, stacks.lines(), &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        // Frames are all there, and all time is below the root.
        let all = format!("<title>all ({} micros, 100%)</title>", "420,000");
        assert!(svg.contains(&all), "{svg:.3000}");
        assert!(svg.contains("pod.start"), "{svg:.3000}");
        let sandbox = svg
            .lines()
            .filter(|line| line.contains("cri.RunPodSandbox"));
        assert!(sandbox.count() > 0);
    }
}

/// The parser of the Python package `perfetto`, out of Perfetto's own definitions.
#[test]
#[ignore = "needs python3 with the package perfetto"]
fn perfetto_traces_are_read_by_perfetto() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.perfetto");
    for trace in [pod_start(), hostile()] {
        let mut bytes = Vec::new();
        perfetto::write(std::slice::from_ref(&trace), &mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/read_perfetto.py");
        let output = Command::new("python3").arg(script).arg(&path).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        let slices = read["slices"].as_array().unwrap();
        assert_eq!(
            slices.len(),
            trace.spans.len() + trace.critical_path().len() + 1
        );
        assert_eq!(read["flows"], 2);
        let sandbox = slices.iter().find(|slice| {
            let name = slice["name"].as_str().unwrap();
            name.starts_with("cri.RunPodSandbox")
        });
        assert_eq!(sandbox.unwrap()["nanos"], 200_000_000);
        assert!(!read["processes"].as_array().unwrap().is_empty());
    }
}
