//! A trace as text: one line per span, children below their parents.

use std::time::Duration;

use polylet_trace::{SpanRecord, Trace, depth_first, hex};

use super::text;

/// Width of the bar in columns.
const BAR: i128 = 32;
/// Attributes that are shown, and their short names.
const SHOWN: &[(&str, &str)] = &[
    ("k8s.container.name", "container"),
    ("polylet.attempt", "attempt"),
    ("polylet.result", "result"),
    ("rpc.response.status_code", "result"),
    // Of earlier programs, in files and during upgrades.
    ("attempt", "attempt"),
    ("result", "result"),
];

/// Formats a trace, its critical path marked by `*`.
pub fn waterfall(trace: &Trace) -> String {
    let (spans, nodes) = (&trace.spans, trace.nodes());
    let begin = nodes.iter().map(|node| node.start).min().unwrap_or(0);
    let end = nodes.iter().map(|node| node.end).max().unwrap_or(begin);
    let path = trace.critical_path();
    let is_on_path = |at| path.iter().any(|segment| segment.node == Some(at));
    let mut rows: Vec<[String; 6]> = Vec::new();
    for (at, depth) in depth_first(&nodes) {
        let (Some(span), Some(node)) = (spans.get(at), nodes.get(at)) else {
            continue;
        };
        rows.push([
            if is_on_path(at) { "*" } else { " " }.to_owned(),
            text::duration(nanos(node.start - begin)),
            text::duration(nanos(node.end - node.start)),
            span.service.clone(),
            bar(node.start - begin, node.end - begin, end - begin),
            format!("{}{}", "  ".repeat(depth), description(span)),
        ]);
    }
    let mut services: Vec<&str> = spans.iter().map(|span| span.service.as_str()).collect();
    services.sort_unstable();
    services.dedup();
    let failed = spans.iter().filter(|span| span.error.is_some()).count();
    let mut text = format!("trace {}\n\n", hex(&trace.id));
    let titles = ["", "START", "TOOK", "SERVICE", "", "SPAN"].map(str::to_owned);
    let mut widths = [0; 4];
    for [mark, start, took, service, ..] in [&titles].into_iter().chain(&rows) {
        for (width, cell) in widths.iter_mut().zip([mark, start, took, service]) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [m, s, t, v] = widths;
    for [mark, start, took, service, bar, name] in [&titles].into_iter().chain(&rows) {
        let line = format!("{mark:<m$} {start:>s$} {took:>t$}  {service:<v$}  {bar:<34}  {name}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!(
        "\ntotal {}, {} spans in {} services, {failed} with errors; * marks the critical path\n",
        text::duration(nanos(end - begin)),
        spans.len(),
        services.len(),
    ));
    text
}

pub(super) fn nanos(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn bar(start: i128, end: i128, total: i128) -> String {
    let total = total.max(1);
    let from = (start * BAR / total).min(BAR - 1);
    let to = ((end * BAR + total - 1) / total).clamp(from + 1, BAR);
    let cell = |at: i128| if at >= from && at < to { '=' } else { ' ' };
    format!("|{}|", (0..BAR).map(cell).collect::<String>())
}

pub(super) fn description(span: &SpanRecord) -> String {
    let mut text = span.name.clone();
    for (key, name) in SHOWN {
        if let Some(value) = span.attributes.get(*key).filter(|value| !value.is_empty()) {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    if !span.links.is_empty() {
        text.push_str(&format!(" links={}", span.links.len()));
    }
    if let Some(error) = &span.error {
        text.push_str(&format!("  ERROR {}", error.replace('\n', " ")));
    }
    text
}

#[cfg(test)]
#[path = "waterfall_tests.rs"]
mod tests;
