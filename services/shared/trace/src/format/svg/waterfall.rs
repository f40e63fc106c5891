//! The drawing itself.

use maud::{Markup, html};

use super::axis::ticks;
use crate::critical_path::PathSegment;
use crate::path_tree::{PathNode, depth_first};
use crate::span::{POD_NAME, POD_NAMESPACE, SpanRecord, hex};
use crate::step_owner::StepOwner;
use crate::text::{duration, printable};
use crate::trace::Trace;

/// Colours of owners and texts, also in the dark.
pub(in crate::format) const COLOURS: &str = "\
svg.waterfall{font:12px system-ui,sans-serif;background:#fff;fill:#1f2328}\
.bar{fill:#d8dee4}.grid{stroke:#d8dee4;stroke-width:1}.muted{fill:#59636e}.error{fill:#c1121f}\
.polylet{fill:#3b6fb6}.runtime{fill:#e8833a}.api{fill:#4a9d5b}.registry{fill:#9a63b5}.storage{fill:#b5526a}.workload{fill:#2a9d9d}.unattributed{fill:#9aa4ae}\
@media(prefers-color-scheme:dark){svg.waterfall{background:#0d1117;fill:#e6edf3}.bar{fill:#3d444d}.grid{stroke:#2a3038}.muted{fill:#9198a1}.error{fill:#ff7b72}\
.polylet{fill:#6ea3e8}.runtime{fill:#f0a066}.api{fill:#6fc282}.registry{fill:#c392dc}.storage{fill:#e08aa0}.workload{fill:#56c4c4}.unattributed{fill:#6b7580}}";

const WIDTH: f64 = 1200.0;
/// Where the names end and the time begins.
const LEFT: f64 = 330.0;
/// Room for the duration behind a bar.
const RIGHT: f64 = 1130.0;
const ROW: f64 = 20.0;
const TOP: f64 = 92.0;
/// Names are cut off, in characters.
const MAX_NAME: usize = 46;
const MAX_DETAIL: usize = 200;
/// Attributes beyond these are not in the hints.
const MAX_DETAILS: usize = 16;
const OWNERS: [&str; 7] = [
    "polylet",
    "runtime",
    "api",
    "registry",
    "storage",
    "workload",
    "unattributed",
];

/// Where times are on the drawing.
struct TimeScale {
    start: i128,
    length: i128,
}

impl TimeScale {
    fn x(&self, time: i128) -> f64 {
        let share = (time - self.start) as f64 / self.length.max(1) as f64;
        LEFT + share * (RIGHT - LEFT)
    }

    /// A bar, never too narrow to be seen.
    fn bar(&self, start: i128, end: i128, y: f64, class: &str) -> Markup {
        let from = self.x(start);
        let width = (self.x(end) - from).max(1.0);
        html! { rect class=(class) x=(pixels(from)) y=(pixels(y + 4.0)) width=(pixels(width)) height="12" rx="2" {} }
    }
}

/// Draws a trace, its first spans if there are more than `max_rows`. `head` is placed at the beginning.
pub(in crate::format) fn waterfall(trace: &Trace, max_rows: usize, head: Markup) -> Markup {
    let nodes = trace.nodes();
    let start = nodes.iter().map(|node| node.start).min().unwrap_or(0);
    let end = nodes.iter().map(|node| node.end).max().unwrap_or(start);
    let scale = TimeScale {
        start,
        length: end - start,
    };
    let path = trace.critical_path();
    let order = depth_first(&nodes);
    let shown = order.len().min(max_rows);
    let bottom = TOP + (shown + 1) as f64 * ROW;
    let height = bottom + if shown < order.len() { 56.0 } else { 34.0 };
    html! {
        svg class="waterfall" xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) }
            width=(WIDTH) height=(height) role="img" {
            (head)
            (titles(trace, scale.length))
            @for tick in ticks(scale.length) {
                @let x = pixels(scale.x(start + tick.at));
                line class="grid" x1=(x) x2=(x) y1=(TOP - 14.0) y2=(bottom) {}
                text class="muted" x=(x) y=(TOP - 20.0) text-anchor="middle" { (tick.label) }
            }
            text x="10" y=(TOP + 14.0) font-weight="600" { "critical path" }
            @for segment in &path {
                (path_segment(trace, segment, &scale))
            }
            @for (row, (at, depth)) in order.iter().take(shown).enumerate() {
                @let y = TOP + (row + 1) as f64 * ROW;
                @if let (Some(span), Some(node)) = (trace.spans.get(*at), nodes.get(*at)) {
                    g { (span_row(span, node, *depth, y, &scale))
                        @for segment in path.iter().filter(|segment| segment.node == Some(*at)) {
                            (scale.bar(segment.start, segment.end, y, StepOwner::of(&span.service, &span.name).label()))
                        }
                    }
                }
            }
            @if shown < order.len() {
                text class="muted" x="10" y=(bottom + 16.0) { "and " (order.len() - shown) " further spans" }
            }
            (legend(height - 12.0))
        }
    }
}

fn titles(trace: &Trace, length: i128) -> Markup {
    let root = trace.root();
    let of_pod = trace
        .spans
        .iter()
        .find(|span| !span.attribute(POD_NAME).is_empty());
    let name = root.map_or("", |root| root.name.as_str());
    let pod = of_pod.map(|span| {
        let [namespace, name] = [POD_NAMESPACE, POD_NAME].map(|key| span.attribute(key));
        format!("{namespace}/{name}")
    });
    let title = format!("{name} {}", pod.unwrap_or_default());
    let start = root.map(|root| root.start.to_string()).unwrap_or_default();
    html! {
        title { (printable(title.trim(), MAX_DETAIL)) }
        text x="10" y="24" font-size="16" font-weight="600" {
            (printable(title.trim(), 100)) " · " (duration(length as f64 / 1000.0))
        }
        text class="muted" x="10" y="44" {
            (start) " · trace " (hex(&trace.id)) " · " (trace.spans.len()) " spans"
        }
    }
}

fn path_segment(trace: &Trace, segment: &PathSegment, scale: &TimeScale) -> Markup {
    let span = segment.node.and_then(|at| trace.spans.get(at));
    let owner = span.map_or("unattributed", |span| {
        StepOwner::of(&span.service, &span.name).label()
    });
    let name = span.map_or_else(|| "(unattributed)".to_owned(), full_name);
    let time = duration((segment.end - segment.start) as f64 / 1000.0);
    html! {
        g {
            title { (printable(&name, MAX_DETAIL)) ": " (time) }
            (scale.bar(segment.start, segment.end, TOP, owner))
        }
    }
}

fn span_row(span: &SpanRecord, node: &PathNode, depth: usize, y: f64, scale: &TimeScale) -> Markup {
    let indent = 10.0 + depth.min(12) as f64 * 12.0;
    let most = MAX_NAME.saturating_sub(depth.min(12) * 2);
    let class = span.error.as_ref().map(|_| "error");
    let took = duration((node.end - node.start) as f64 / 1000.0);
    let attributes = span.attributes.iter().take(MAX_DETAILS);
    html! {
        title {
            (printable(&full_name(span), MAX_DETAIL)) ": " (took)
            ", from " (duration((node.start - scale.start) as f64 / 1000.0))
            @if let Some(error) = &span.error { "\nerror: " (printable(error, MAX_DETAIL)) }
            @for (key, value) in attributes {
                "\n" (printable(key, MAX_DETAIL)) ": " (printable(value, MAX_DETAIL))
            }
        }
        text x=(indent) y=(y + 14.0) class=[class] { (printable(&full_name(span), most)) }
        (scale.bar(node.start, node.end, y, "bar"))
        text class="muted" x=(pixels(scale.x(node.end) + 5.0)) y=(y + 14.0) { (took) }
    }
}

fn full_name(span: &SpanRecord) -> String {
    format!("{}/{}", span.service, span.name)
}

fn legend(y: f64) -> Markup {
    html! {
        @for (position, owner) in OWNERS.iter().enumerate() {
            @let x = LEFT + position as f64 * 110.0;
            rect class=(owner) x=(x) y=(y - 10.0) width="12" height="12" rx="2" {}
            text class="muted" x=(x + 18.0) y=(y) { (owner) }
        }
        text class="muted" x="10" y=(y) { "time on the path, by owner" }
    }
}

/// A coordinate, no more precise than a screen.
fn pixels(at: f64) -> String {
    format!("{at:.1}")
}
