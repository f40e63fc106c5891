//! The spans of a trace.

use std::collections::BTreeMap;

use crate::critical_path::{PathSegment, critical_path, critical_path_until};
use crate::path_tree::PathNode;
use crate::span::{SpanId, SpanRecord, TraceId, parse_span_id};

/// A trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Its ID.
    pub id: TraceId,
    /// Its spans, in any order.
    pub spans: Vec<SpanRecord>,
}

impl Trace {
    /// The span without a parent: of several the derived one, or else the first.
    pub fn root(&self) -> Option<&SpanRecord> {
        let roots = self.spans.iter().filter(|span| span.parent.is_none());
        roots.min_by_key(|span| (!span.is_derived_root(), span.start, span.span))
    }

    /// The spans with the indices of their parents and causes; times in nanoseconds.
    pub fn nodes(&self) -> Vec<PathNode> {
        let ids = self.spans.iter().enumerate();
        let indices: BTreeMap<SpanId, usize> = ids.map(|(at, span)| (span.span, at)).collect();
        let node = |span: &SpanRecord| PathNode {
            start: span.start.as_nanosecond(),
            // The clock may have been set back.
            end: span.end.max(span.start).as_nanosecond(),
            parent: span.parent.and_then(|id| indices.get(&id).copied()),
            causes: {
                let ids = span.links.iter().filter_map(|link| link.rsplit_once('-'));
                let ids = ids.filter_map(|(_, id)| parse_span_id(id));
                ids.filter_map(|id| indices.get(&id).copied()).collect()
            },
        };
        self.spans.iter().map(node).collect()
    }

    /// What the end of the trace waited for; the nodes of the segments are indices of spans. A derived root explains
    /// nothing, but the trace ends with it: a container that has started goes on.
    pub fn critical_path(&self) -> Vec<PathSegment> {
        let nodes = self.nodes();
        let root = self.spans.iter().position(SpanRecord::is_derived_root);
        let mut path = match root {
            Some(root) => critical_path_until(&nodes, root),
            None => critical_path(&nodes),
        };
        for segment in &mut path {
            let span = segment.node.and_then(|at| self.spans.get(at));
            if span.is_some_and(SpanRecord::is_derived_root) {
                segment.node = None;
            }
        }
        path
    }
}
