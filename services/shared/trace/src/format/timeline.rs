//! Traces on the tracks of a viewer: a process per service, lanes on which its spans nest, and the critical path.

use std::collections::{BTreeMap, HashMap};

use super::lanes::lanes;
use crate::span::{POD_NAME, POD_NAMESPACE, SpanId, SpanRecord, TraceId, hex};
use crate::step_owner::StepOwner;
use crate::text::printable;
use crate::trace::Trace;

/// Longer texts are cut off, in characters: viewers show them in a column.
const MAX_TEXT: usize = 1000;

/// All that a viewer shows.
#[derive(Debug)]
pub(super) struct Timeline {
    /// The critical path first.
    pub(super) processes: Vec<TimelineProcess>,
    pub(super) flows: Vec<TimelineFlow>,
    /// The first moment, in nanoseconds since 1970.
    pub(super) start: i128,
}

/// The spans of a service.
#[derive(Debug)]
pub(super) struct TimelineProcess {
    pub(super) name: String,
    /// On each, slices nest; outer ones come before those within them.
    pub(super) lanes: Vec<Vec<TimelineSlice>>,
}

/// A span, or a part of a critical path.
#[derive(Debug, Clone)]
pub(super) struct TimelineSlice {
    /// In nanoseconds since 1970, as is the end.
    pub(super) start: i128,
    pub(super) end: i128,
    pub(super) name: String,
    /// Whose time it is.
    pub(super) category: &'static str,
    pub(super) details: Vec<(String, String)>,
    /// The flows that begin and end here, by their indices.
    pub(super) flows_out: Vec<usize>,
    pub(super) flows_in: Vec<usize>,
}

/// One span led to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimelineFlow {
    /// When the one led to the other, in nanoseconds since 1970.
    pub(super) left: i128,
    pub(super) arrived: i128,
}

/// The name of the process with the critical paths.
pub(super) const CRITICAL_PATH: &str = "critical path";

impl Timeline {
    pub(super) fn new(traces: &[Trace]) -> Timeline {
        let mut services: BTreeMap<&str, Vec<TimelineSlice>> = BTreeMap::new();
        let mut flows = Vec::new();
        for trace in traces {
            let of_trace = slices(trace, &mut flows);
            for (span, slice) in trace.spans.iter().zip(of_trace) {
                services.entry(&span.service).or_default().push(slice);
            }
        }
        let path = traces.iter().flat_map(path_slices).collect();
        let services = services
            .into_iter()
            .map(|(name, slices)| process(name, slices));
        let processes: Vec<_> = std::iter::once(process(CRITICAL_PATH, path))
            .chain(services)
            .collect();
        let slices = processes.iter().flat_map(|process| &process.lanes);
        let start = slices.flatten().map(|slice| slice.start).min();
        Timeline {
            start: start.unwrap_or_default(),
            processes,
            flows,
        }
    }
}

fn process(name: &str, slices: Vec<TimelineSlice>) -> TimelineProcess {
    let times: Vec<_> = slices
        .iter()
        .map(|slice| (slice.start, slice.end))
        .collect();
    let of_lane = |lane: Vec<usize>| {
        let slices = lane.into_iter().filter_map(|at| slices.get(at).cloned());
        slices.collect()
    };
    TimelineProcess {
        name: match name {
            "" => "unknown service".to_owned(),
            name => printable(name, MAX_TEXT),
        },
        lanes: lanes(&times).into_iter().map(of_lane).collect(),
    }
}

/// The slices of the spans, in their order.
fn slices(trace: &Trace, flows: &mut Vec<TimelineFlow>) -> Vec<TimelineSlice> {
    let nodes = trace.nodes();
    let mut slices: Vec<TimelineSlice> = trace
        .spans
        .iter()
        .zip(&nodes)
        .map(|(span, node)| TimelineSlice {
            start: node.start,
            end: node.end,
            name: printable(&span.name, MAX_TEXT),
            category: StepOwner::of(&span.service, &span.name).label(),
            details: details(trace.id, span.span, span),
            flows_out: Vec::new(),
            flows_in: Vec::new(),
        })
        .collect();
    for (at, (node, span)) in nodes.iter().zip(&trace.spans).enumerate() {
        let is_shown_by_nesting = |parent: &usize| {
            let caller = trace.spans.get(*parent);
            let is_around = nodes.get(*parent).is_some_and(|of| of.end >= node.end);
            caller.is_none_or(|caller| {
                caller.is_derived_root() || caller.service == span.service && is_around
            })
        };
        let parent = node.parent.filter(|parent| !is_shown_by_nesting(parent));
        let mut causes: Vec<usize> = node.causes.iter().copied().chain(parent).collect();
        causes.sort_unstable();
        causes.dedup();
        for cause in causes.into_iter().filter(|cause| *cause != at) {
            let Some(from) = nodes.get(cause).filter(|from| from.start <= node.start) else {
                continue;
            };
            let flow = flows.len();
            flows.push(TimelineFlow {
                // Within the slice, or else viewers do not find it.
                left: (from.end - 1).clamp(from.start, node.start),
                arrived: node.start,
            });
            if let Some(slice) = slices.get_mut(cause) {
                slice.flows_out.push(flow);
            }
            if let Some(slice) = slices.get_mut(at) {
                slice.flows_in.push(flow);
            }
        }
    }
    slices
}

fn details(trace: TraceId, id: SpanId, span: &SpanRecord) -> Vec<(String, String)> {
    let own = [
        ("trace_id", hex(&trace)),
        ("span_id", hex(&id)),
        ("version", printable(&span.version, MAX_TEXT)),
        (
            "error",
            printable(span.error.as_deref().unwrap_or_default(), MAX_TEXT),
        ),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    let attributes = span.attributes.iter();
    let attributes =
        attributes.map(|(key, value)| (printable(key, MAX_TEXT), printable(value, MAX_TEXT)));
    let all = own.chain(attributes).filter(|(_, value)| !value.is_empty());
    // Keys that are the same once they are cut off.
    let mut unique: HashMap<String, ()> = HashMap::new();
    all.filter(|(key, _)| unique.insert(key.clone(), ()).is_none())
        .collect()
}

/// A slice for the trace, and within it one for each segment of its path.
fn path_slices(trace: &Trace) -> Vec<TimelineSlice> {
    let path = trace.critical_path();
    let (Some(first), Some(last)) = (path.first(), path.last()) else {
        return Vec::new();
    };
    // Of the steps nothing that differs from trace to trace: viewers such as speedscope sum up what is the same.
    let slice = |start, end, name: &str, category| TimelineSlice {
        start,
        end,
        name: printable(name, MAX_TEXT),
        category,
        details: Vec::new(),
        flows_out: Vec::new(),
        flows_in: Vec::new(),
    };
    let of_pod = trace
        .spans
        .iter()
        .find(|span| !span.attribute(POD_NAME).is_empty());
    let pod = of_pod.map_or_else(
        || hex(&trace.id),
        |span| {
            format!(
                "{}/{}",
                span.attribute(POD_NAMESPACE),
                span.attribute(POD_NAME)
            )
        },
    );
    let whole = TimelineSlice {
        details: vec![("trace_id".to_owned(), hex(&trace.id))],
        ..slice(first.start, last.end, &pod, "polylet")
    };
    let mut slices = vec![whole];
    slices.extend(path.iter().map(|segment| {
        let span = segment.node.and_then(|at| trace.spans.get(at));
        let (name, category) = match span {
            Some(span) => (
                format!("{}/{}", span.service, span.name),
                StepOwner::of(&span.service, &span.name).label(),
            ),
            None => ("(unattributed)".to_owned(), "unattributed"),
        };
        slice(segment.start, segment.end, &name, category)
    }));
    slices
}
