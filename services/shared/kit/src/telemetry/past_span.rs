//! Spans of what was over when this process learned of it, such as the run of a container.

use std::sync::OnceLock;
use std::time::SystemTime;

use jiff::Timestamp;
use opentelemetry::trace::{Link, Span, SpanBuilder, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use polylet_wire::common::v1::Cause;

use crate::cause;

/// The tracer of the process. The `tracing` crate has no spans with a time of their own.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Makes the tracer known to [`record`].
pub(super) fn set_tracer(tracer: SdkTracer) {
    // Set before only in tests, which share a process.
    let _ = TRACER.set(tracer);
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct PastSpan {
    /// Its name.
    pub name: &'static str,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its attributes, by name.
    pub attributes: Vec<(&'static str, String)>,
}

/// Records a span that follows from its cause, and returns its traceparent. Without a valid cause, or when the times are
/// reversed, nothing is recorded.
pub fn record(span: PastSpan, cause: &Cause) -> Option<String> {
    let direct = cause::parse(&cause.traceparent)?;
    if span.ended_at < span.started_at {
        return None;
    }
    let tracer = TRACER.get()?;
    let attributes = span.attributes.into_iter();
    let attributes = attributes.map(|(name, value)| KeyValue::new(name, value));
    let builder = SpanBuilder::from_name(span.name)
        .with_start_time(SystemTime::from(span.started_at))
        .with_links(vec![Link::with_context(direct.clone())])
        .with_attributes(attributes);
    let root = cause::root_context(direct.trace_id(), direct.trace_flags());
    let context = Context::new().with_remote_span_context(root);
    let mut recorded = tracer.build_with_context(builder, &context);
    let traceparent = cause::to_traceparent(recorded.span_context());
    recorded.end_with_timestamp(SystemTime::from(span.ended_at));
    traceparent
}
