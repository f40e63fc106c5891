//! The cause of a change, carried as data: one long stream serves many traces, so the trace context
//! travels with each item and not with the call.

use std::sync::OnceLock;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use polylet_wire::common::v1::Cause;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::sampling::{JOINED, TraceSampler};

/// Most links of one cause.
pub const MAX_LINKS: usize = 8;
/// The attribute of a trace's first step that names the trace's root.
pub const ROOT_ATTRIBUTE: &str = "polylet.root";
/// The attribute of a trace's last step that says how the trace ended.
pub const OUTCOME_ATTRIBUTE: &str = "polylet.outcome";

/// How traces end.
pub mod outcome {
    /// The pod is Ready.
    pub const READY: &str = "ready";
    /// The containers of the pod have completed.
    pub const SUCCEEDED: &str = "succeeded";
    /// The pod has failed.
    pub const FAILED: &str = "failed";
    /// The pod is gone.
    pub const REMOVED: &str = "removed";
}

/// The roots of traces.
pub mod root {
    /// From the first sight of a pod to its Ready status.
    pub const POD_START: &str = "pod.start";
    /// From the first sight of a pod's changed specification to the end of what followed.
    pub const POD_UPDATE: &str = "pod.update";
    /// From the first sight of a deletion to the removal of the pod.
    pub const POD_DELETE: &str = "pod.delete";
    /// From the decision to evict a pod to its end.
    pub const POD_EVICT: &str = "pod.evict";
    /// From the sight of a container's exit to the end of what followed.
    pub const CONTAINER_EXIT: &str = "container.exit";
    /// From a probe's outcome that no start waited for to the end of what followed.
    pub const PROBE_CHANGE: &str = "probe.change";
    /// From a change of a volume's source to the files.
    pub const VOLUME_UPDATE: &str = "volume.update";
    /// Work that nothing known has caused, such as after a restart of a service.
    pub const POD_SYNC: &str = "pod.sync";
}

/// Which traces the node exports; not set in tests that record nothing.
static SAMPLER: OnceLock<TraceSampler> = OnceLock::new();

/// Sets which traces are marked as sampled.
pub(crate) fn set_sampler(sampler: TraceSampler) {
    // Set before only in tests, which share a process.
    let _ = SAMPLER.set(sampler);
}

/// The current span as a cause, observed now.
pub fn from_current_span() -> Cause {
    from_span(&Span::current())
}

/// A span as a cause, observed now. This starts the span: its parent can no longer be set.
pub fn from_span(span: &Span) -> Cause {
    Cause {
        traceparent: traceparent(span).unwrap_or_default(),
        observed_at: Some(polylet_wire::time::now()),
        links: Vec::new(),
    }
}

/// W3C traceparent of a span for the node's other services; `None` when it is not recorded.
pub fn traceparent(span: &Span) -> Option<String> {
    if span.is_disabled() {
        return None;
    }
    to_traceparent(span.context().span().span_context())
}

/// W3C traceparent of a context; `None` when it is not valid.
pub(crate) fn to_traceparent(context: &SpanContext) -> Option<String> {
    context.is_valid().then(|| {
        let flags = context.trace_flags() & (TraceFlags::SAMPLED | JOINED);
        format!(
            "00-{}-{}-{flags:02x}",
            context.trace_id(),
            context.span_id()
        )
    })
}

/// Makes a call's span a child of the span that it was made in. Call it before the span is entered or its context
/// is read. Without a valid traceparent the span keeps its parent.
pub fn set_caller(span: &Span, traceparent: &str) {
    if let Some(caller) = parse(traceparent) {
        // An error means that the span is not recorded, which is fine.
        let _ = span.set_parent(Context::new().with_remote_span_context(caller));
    }
}

/// Makes `span` a step of its cause's trace: a child of the trace's root, linked to the cause, as it may outlive the
/// cause's own span. Call it before the span is entered or its context is read. Without a cause the span keeps its
/// parent.
pub fn follow(span: &Span, cause: Option<&Cause>) {
    let Some(cause) = cause else { return };
    let Some(direct) = parse(&cause.traceparent) else {
        return;
    };
    let parent = root_context(direct.trace_id(), direct.trace_flags());
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    let links = cause.links.iter().filter_map(|link| parse(link));
    for link in std::iter::once(direct).chain(links).take(1 + MAX_LINKS) {
        span.add_link(link);
    }
}

/// Makes `span` the first step of a new trace. The trace's root lasts from its first step to its last: the
/// supervisor writes it when that is known, under the name of [`name_root`]. Call it before the span is entered.
pub fn start_trace(span: &Span) {
    let trace = RandomIdGenerator::default().new_trace_id();
    let sampler = SAMPLER.get();
    let is_sampled = sampler.is_none_or(|sampler| sampler.samples(trace.to_bytes()));
    let flags = TraceFlags::default().with_sampled(is_sampled);
    let root = root_context(trace, flags);
    let _ = span.set_parent(Context::new().with_remote_span_context(root));
}

/// Names the root of the trace whose first step `span` is: one of [`root`].
pub fn name_root(span: &Span, root: &'static str) {
    span.set_attribute(ROOT_ATTRIBUTE, root);
}

/// Marks `span` as the last step of its trace, which ended so.
pub fn record_outcome(span: &Span, outcome: &'static str) {
    span.set_attribute(OUTCOME_ATTRIBUTE, outcome);
}

/// Makes `span` a trace of its own, of maintenance that nothing follows from. Call it before the span is entered.
pub fn detach(span: &Span) {
    let _ = span.set_parent(Context::new());
}

/// The ID of the root span of a trace that began with [`start_trace`]: the second half of the trace's ID, so that
/// whoever knows the trace knows its root.
pub fn root_id(trace: [u8; 16]) -> [u8; 8] {
    let [.., a, b, c, d, e, f, g, h] = trace;
    [a, b, c, d, e, f, g, h]
}

pub(crate) fn root_context(trace: TraceId, flags: TraceFlags) -> SpanContext {
    let root = SpanId::from_bytes(root_id(trace.to_bytes()));
    SpanContext::new(trace, root, flags, true, TraceState::NONE)
}

/// Merges another cause into one: its span and its links become links, each once, at most
/// [`MAX_LINKS`].
pub fn fold(into: &mut Cause, other: &Cause) {
    if into.traceparent.is_empty() {
        into.traceparent.clone_from(&other.traceparent);
        if into.observed_at.is_none() {
            into.observed_at = other.observed_at;
        }
    }
    for link in std::iter::once(&other.traceparent).chain(&other.links) {
        let known = link.is_empty() || *link == into.traceparent || into.links.contains(link);
        if !known && into.links.len() < MAX_LINKS {
            into.links.push(link.clone());
        }
    }
}

/// Parses a W3C traceparent.
pub fn parse(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Later versions may add parts; version 00 has none, and ff is no version.
    let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !hex(version, 2) || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    if !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::NONE,
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn cause(parent: &str, links: &[&str]) -> Cause {
        Cause {
            traceparent: parent.to_owned(),
            observed_at: None,
            links: links.iter().map(|l| l.to_string()).collect(),
        }
    }

    #[test]
    fn parses_traceparents() {
        assert!(parse(A).is_some());
        for bad in [
            "",
            "00",
            "00-0-0-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn fold_keeps_each_link_once_and_at_most_eight() {
        let mut into = cause("a", &["b"]);
        fold(&mut into, &cause("c", &["b", "a", "d"]));
        assert_eq!(into.links, ["b", "c", "d"]);
        for n in 0..20 {
            fold(&mut into, &cause(&n.to_string(), &[]));
        }
        assert_eq!(into.links.len(), MAX_LINKS);
        let mut empty = Cause::default();
        fold(&mut empty, &cause("a", &["b"]));
        assert_eq!((empty.traceparent.as_str(), empty.links.len()), ("a", 1));
    }

    proptest! {
        #[test]
        fn parse_accepts_any_text(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
