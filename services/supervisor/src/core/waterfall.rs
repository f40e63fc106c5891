//! A trace as text: one line per span, in the order of cause and start.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::critical_path::{Node, children, critical_path};
use super::text;

/// Columns of the bar.
const BAR: i128 = 32;
/// Attributes worth their place on a line, and how they are told.
const SHOWN: &[(&str, &str)] = &[
    ("k8s.container.name", "container"),
    ("attempt", "attempt"),
    ("result", "result"),
];

/// A span to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its id.
    pub id: String,
    /// The id of its parent; empty at the root.
    pub parent: String,
    /// Who recorded it.
    pub service: String,
    /// What was done.
    pub name: String,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What else was said.
    pub attributes: BTreeMap<String, String>,
    /// The error it ended in; empty if none.
    pub error: String,
    /// Folded stimuli.
    pub links: usize,
}

/// The trace with its critical path marked by `*`.
pub fn waterfall(trace_id: &str, spans: &[Span]) -> String {
    let nodes = nodes(spans);
    let begin = nodes.iter().map(|node| node.start).min().unwrap_or(0);
    let end = nodes.iter().map(|node| node.end).max().unwrap_or(begin);
    let marked = critical_path(&nodes);
    let mut rows: Vec<[String; 6]> = Vec::new();
    for (at, depth) in in_order(&nodes) {
        let (span, node) = (&spans[at], nodes[at]);
        rows.push([
            if marked[at] { "*" } else { " " }.to_owned(),
            text::span(nanos(node.start - begin)),
            text::span(nanos(node.end - node.start)),
            span.service.clone(),
            bar(node.start - begin, node.end - begin, end - begin),
            format!("{}{}", "  ".repeat(depth), told(span)),
        ]);
    }
    let mut services: Vec<&str> = spans.iter().map(|span| span.service.as_str()).collect();
    services.sort_unstable();
    services.dedup();
    let failed = spans.iter().filter(|span| !span.error.is_empty()).count();
    let mut text = format!("trace {trace_id}\n\n");
    let titles = ["", "START", "TOOK", "SERVICE", "", "SPAN"].map(str::to_owned);
    let widths = [0, 1, 2, 3].map(|column: usize| {
        let cells = rows
            .iter()
            .chain([&titles])
            .map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    });
    for [mark, start, took, service, bar, name] in [&titles].into_iter().chain(&rows) {
        let [m, s, t, v] = widths;
        let line = format!("{mark:<m$} {start:>s$} {took:>t$}  {service:<v$}  {bar:<34}  {name}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&format!(
        "\ntotal {}, {} spans in {} services, {failed} with errors; * is what the end waited for\n",
        text::span(nanos(end - begin)),
        spans.len(),
        services.len(),
    ));
    text
}

fn nodes(spans: &[Span]) -> Vec<Node> {
    let places: BTreeMap<&str, usize> = spans
        .iter()
        .enumerate()
        .map(|(at, span)| (span.id.as_str(), at))
        .collect();
    let node = |span: &Span| Node {
        start: span.start.as_nanosecond(),
        // Clocks of one machine may still step back.
        end: span.end.as_nanosecond().max(span.start.as_nanosecond()),
        parent: places.get(span.parent.as_str()).copied(),
    };
    spans.iter().map(node).collect()
}

/// Places with depths, children below their parents, earlier ones first.
fn in_order(nodes: &[Node]) -> Vec<(usize, usize)> {
    let children = children(nodes);
    let sorted = |places: &[usize]| {
        let mut places = places.to_vec();
        places.sort_by_key(|at| std::cmp::Reverse((nodes[*at].start, nodes[*at].end)));
        places
    };
    let mut order = Vec::with_capacity(nodes.len());
    let mut waiting: Vec<(usize, usize)> = sorted(&children[nodes.len()])
        .into_iter()
        .map(|at| (at, 0))
        .collect();
    while let Some((at, depth)) = waiting.pop() {
        order.push((at, depth));
        waiting.extend(
            sorted(&children[at])
                .into_iter()
                .map(|child| (child, depth + 1)),
        );
    }
    order
}

fn nanos(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn bar(start: i128, end: i128, total: i128) -> String {
    let total = total.max(1);
    let from = (start * BAR / total).min(BAR - 1);
    let to = ((end * BAR + total - 1) / total).clamp(from + 1, BAR);
    let cell = |at: i128| if at >= from && at < to { '=' } else { ' ' };
    format!("|{}|", (0..BAR).map(cell).collect::<String>())
}

fn told(span: &Span) -> String {
    let mut text = span.name.clone();
    for (key, name) in SHOWN {
        if let Some(value) = span.attributes.get(*key).filter(|value| !value.is_empty()) {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    if span.links > 0 {
        text.push_str(&format!(" links={}", span.links));
    }
    if !span.error.is_empty() {
        text.push_str(&format!("  ERROR {}", span.error.replace('\n', " ")));
    }
    text
}

#[cfg(test)]
#[path = "waterfall_tests.rs"]
mod tests;
