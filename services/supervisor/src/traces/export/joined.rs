//! Traces that continue one from outside the node. On the node each pod's start is a trace of its own; a collector
//! gets its spans under the ID of the trace that it continues, with the root below the span that the pod names.

use std::num::NonZeroUsize;

use lru::LruCache;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use polylet_kit::cause;
use polylet_kit::sampling::JOINED;
use polylet_kit::trace_context::PARENT_ATTRIBUTE;
use polylet_trace::{SpanId, TraceId};

/// Most traces whose parent is remembered.
const MAX_JOINED: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// The span that a trace continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutsideParent {
    trace: TraceId,
    span: SpanId,
    is_sampled: bool,
}

/// The parents of traces.
pub(super) struct JoinedTraces(LruCache<TraceId, OutsideParent>);

impl JoinedTraces {
    pub(super) fn new() -> JoinedTraces {
        JoinedTraces(LruCache::new(MAX_JOINED))
    }

    /// Remembers the parents that first steps name.
    pub(super) fn learn(&mut self, spans: &ResourceSpans) {
        for span in spans.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let named = span
                .attributes
                .iter()
                .find(|one| one.key == PARENT_ATTRIBUTE);
            let named = named.and_then(|one| one.value.as_ref()?.value.as_ref());
            let (Some(Value::StringValue(text)), Ok(trace)) =
                (named, TraceId::try_from(span.trace_id.as_slice()))
            else {
                continue;
            };
            if let Some(parent) = cause::parse(text) {
                let parent = OutsideParent {
                    trace: parent.trace_id().to_bytes(),
                    span: parent.span_id().to_bytes(),
                    is_sampled: parent.is_sampled(),
                };
                self.0.put(trace, parent);
            }
        }
    }

    /// The flags of a trace whose parent is known. What was recorded before its annotation was read has others.
    pub(super) fn flags(&self, trace: TraceId) -> Option<u32> {
        let parent = self.0.peek(&trace)?;
        Some(u32::from(JOINED.with_sampled(parent.is_sampled).to_u8()))
    }

    /// Puts the spans of traces that continue others into those.
    pub(super) fn join(&mut self, spans: &mut [ResourceSpans]) {
        let scopes = spans
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_spans);
        for span in scopes.flat_map(|scope| &mut scope.spans) {
            let own = TraceId::try_from(span.trace_id.as_slice());
            if let Ok(own) = own
                && let Some(parent) = self.0.get(&own)
            {
                join(span, own, *parent);
            }
        }
    }
}

fn join(span: &mut Span, own: TraceId, parent: OutsideParent) {
    span.trace_id = parent.trace.to_vec();
    if span.span_id == cause::root_id(own) {
        span.parent_span_id = parent.span.to_vec();
    }
    for link in span.links.iter_mut().filter(|link| link.trace_id == own) {
        link.trace_id = parent.trace.to_vec();
    }
}
