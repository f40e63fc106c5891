//! Files of traces that any program may have written, and what commands make of them.

use std::io::Cursor;

use polylet_trace::diff::{DiffOptions, compare, table};
use polylet_trace::format::{chrome, folded, html, otlp_json, perfetto, svg};
use polylet_trace::{
    StepGrouping, Trace, TraceSummary, attribute_differences, path_statistics, slow_steps,
};

/// Lines of OTLP's JSON.
pub(super) fn trace_file(data: &[u8]) {
    let mut invalid = 0;
    let traces = otlp_json::read(Cursor::new(data), &mut |_| invalid += 1);
    let lines = data.split(|byte| *byte == b'\n').count();
    assert!(invalid <= lines, "{invalid} errors for {lines} lines");
    let summaries: Vec<TraceSummary> = traces.iter().filter_map(Trace::summary).collect();
    for summary in &summaries {
        let sum: std::time::Duration = summary.steps.values().sum();
        assert_eq!(sum, summary.duration, "{summary:?}");
    }
    written_traces_are_read(&traces);
    draw(&traces);
    compare_with_each_other(&traces, &summaries);
}

/// What was written is read as it was.
fn written_traces_are_read(traces: &[Trace]) {
    let mut written = Vec::new();
    otlp_json::write(traces, &mut written).expect("memory has room");
    let read = otlp_json::read(Cursor::new(written), &mut |error| panic!("{error}"));
    assert_eq!(sorted(&read), sorted(traces));
}

fn sorted(traces: &[Trace]) -> Vec<Trace> {
    let mut traces = traces.to_vec();
    for trace in &mut traces {
        trace.spans.sort_by_key(|span| span.span);
    }
    traces.sort_by_key(|trace| trace.id);
    traces
}

fn draw(traces: &[Trace]) {
    let mut out = Vec::new();
    chrome::write(traces, &mut out).expect("memory has room");
    let chrome: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert!(chrome.is_object());
    out.clear();
    perfetto::write(traces, &mut out).expect("memory has room");
    out.clear();
    folded::write(traces, &mut out).expect("memory has room");
    for trace in traces {
        svg::write(trace, &mut out).expect("memory has room");
    }
}

fn compare_with_each_other(traces: &[Trace], summaries: &[TraceSummary]) {
    path_statistics(summaries, StepGrouping::Owner);
    if let Some(first) = summaries.first() {
        slow_steps(first, summaries);
    }
    if let [first, others @ ..] = traces {
        attribute_differences(first, others);
    }
    let (a, b) = summaries.split_at(summaries.len() / 2);
    let comparison = compare(a, b, &DiffOptions::default());
    table(&comparison);
    let mut page = Vec::new();
    html::diff_report("traces", &comparison, &mut page).expect("memory has room");
}
