//! Trace contexts of programs outside the node agent: those that pods bring along, and those that calls to the
//! container runtime, CSI drivers and the API server carry.

use std::sync::OnceLock;

use http::HeaderValue;
use opentelemetry::trace::{SpanContext, TraceContextExt, TraceFlags};
use polylet_wire::common::v1::Cause;
use tonic::metadata::MetadataValue;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::cause;
use crate::config::{PolyletTracing, TraceParent};
use crate::sampling::JOINED;

/// The header, and the metadata of gRPC, with a trace context.
pub const TRACEPARENT: &str = "traceparent";
/// The annotation of a pod with the span that its creation belongs to (KEP-5915).
pub const ANNOTATION: &str = "tracing.k8s.io/traceparent";
/// The attribute of a trace's first step with the span outside that the trace continues.
pub const PARENT_ATTRIBUTE: &str = "polylet.traceparent";
/// The attribute with the ID under which the API server has logged a request.
const AUDIT_ID_ATTRIBUTE: &str = "polylet.audit_id";
/// Longer IDs are left out; the API server's have 36 bytes.
const MAX_AUDIT_ID: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Settings {
    /// Traces continue the spans that pods bring along.
    joins: bool,
    /// The runtime's spans are received here, whether the node exports the trace or not.
    receives: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Applies the configuration to this process.
pub(crate) fn set_up(tracing: &PolyletTracing) {
    // Set before only in tests, which share a process.
    let _ = SETTINGS.set(Settings {
        joins: tracing.trace_parent == TraceParent::Parent,
        receives: tracing.receive.is_some(),
    });
}

fn settings() -> Settings {
    SETTINGS.get().copied().unwrap_or_default()
}

/// The context of a span for a program outside; `None` when it is not recorded.
pub fn header(span: &Span) -> Option<HeaderValue> {
    if span.is_disabled() {
        return None;
    }
    outgoing(span.context().span().span_context(), false)
}

/// The same for the container runtime, which records its spans for the node as well.
pub fn runtime_header(span: &Span) -> Option<HeaderValue> {
    if span.is_disabled() {
        return None;
    }
    outgoing(span.context().span().span_context(), settings().receives)
}

fn outgoing(context: &SpanContext, is_sampled: bool) -> Option<HeaderValue> {
    let sampled = context.trace_flags() & TraceFlags::SAMPLED;
    let sampled = sampled.with_sampled(is_sampled || sampled.is_sampled());
    let (trace, span) = (context.trace_id(), context.span_id());
    let text = context
        .is_valid()
        .then(|| format!("00-{trace}-{span}-{sampled:02x}"))?;
    to_header(text)
}

/// The header with a context. It is of one call: both ends of a connection would keep the last dozens of them in
/// their tables of headers (HPACK), each in allocations of its own, if it were not marked as never indexed.
pub(crate) fn to_header(traceparent: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(traceparent).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Adds the header to a call.
pub fn add_to<T>(call: &mut tonic::Request<T>, header: Option<HeaderValue>) {
    let value = header.and_then(|header| MetadataValue::try_from(header.as_bytes()).ok());
    if let Some(mut value) = value {
        value.set_sensitive(true);
        call.metadata_mut().insert(TRACEPARENT, value);
    }
}

/// Relates the first step of a pod's trace to the span that the pod's annotation names: it is linked, or the trace
/// continues it where the configuration says so. Returns the step as a cause. An annotation that is no traceparent is
/// ignored.
pub fn first_cause(span: &Span, annotation: Option<&str>) -> Cause {
    relate(span, annotation, settings())
}

fn relate(span: &Span, annotation: Option<&str>, settings: Settings) -> Cause {
    let outside = annotation.and_then(cause::parse);
    let Some(outside) = outside else {
        return cause::from_span(span);
    };
    let is_sampled = outside.is_sampled();
    if !settings.joins {
        span.add_link(outside);
        return cause::from_span(span);
    }
    span.set_attribute(
        PARENT_ATTRIBUTE,
        cause::to_traceparent(&outside).unwrap_or_default(),
    );
    let own = cause::from_span(span);
    let flags = JOINED.with_sampled(is_sampled);
    // All further steps have the flags of the cause.
    let traceparent = own
        .traceparent
        .rsplit_once('-')
        .map(|(ids, _)| format!("{ids}-{flags:02x}"));
    Cause {
        traceparent: traceparent.unwrap_or_default(),
        ..own
    }
}

/// Records the ID under which the API server has logged a request in the span of the request.
pub fn record_audit_id(span: &Span, id: Option<&HeaderValue>) {
    let id = id.and_then(|id| id.to_str().ok());
    let is_id = |id: &&str| !id.is_empty() && id.len() <= MAX_AUDIT_ID;
    if let Some(id) = id.filter(is_id).filter(|_| !span.is_disabled()) {
        span.set_attribute(AUDIT_ID_ATTRIBUTE, id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps the spans that have ended.
    #[derive(Debug, Clone, Default)]
    struct EndedSpans(Arc<Mutex<Vec<SpanData>>>);

    impl SpanProcessor for EndedSpans {
        fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &opentelemetry::Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    const OUTSIDE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// The cause of a pod's first step, and that step as it was exported.
    fn first_step(annotation: &str, joins: bool) -> (Cause, SpanData) {
        let exporter = EndedSpans::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let found =
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                let span = tracing::info_span!("podconfig.observe");
                cause::start_trace(&span);
                let receives = false;
                relate(&span, Some(annotation), Settings { joins, receives })
            });
        (found, exporter.0.lock().unwrap().remove(0))
    }

    #[test]
    fn a_pods_annotation_is_a_link() {
        let (cause, step) = first_step(OUTSIDE, false);
        let linked: Vec<_> = step
            .links
            .iter()
            .map(|link| link.span_context.clone())
            .collect();
        assert_eq!(linked, [cause::parse(OUTSIDE).unwrap()]);
        assert!(
            !cause
                .traceparent
                .contains("0af7651916cd43dd8448eb211c80319c")
        );
        let (_, step) = first_step("00-zz", false);
        assert_eq!(step.links.len(), 0, "no traceparent");
    }

    #[test]
    fn a_trace_that_is_joined_has_the_sampled_flag_of_its_parent() {
        let unsampled = OUTSIDE.replace("-01", "-00");
        for (annotation, flags) in [(OUTSIDE, "-81"), (unsampled.as_str(), "-80")] {
            let (cause, step) = first_step(annotation, true);
            assert!(cause.traceparent.ends_with(flags), "{}", cause.traceparent);
            let parent = step
                .attributes
                .iter()
                .find(|one| one.key.as_str() == PARENT_ATTRIBUTE);
            assert_eq!(parent.unwrap().value.as_str(), annotation);
            let context = cause::parse(&cause.traceparent).unwrap();
            let sampled = if flags == "-81" { "-01" } else { "-00" };
            let header = outgoing(&context, false).unwrap();
            assert!(
                header.to_str().unwrap().ends_with(sampled),
                "without our own flag"
            );
            let to_runtime = outgoing(&context, true).unwrap();
            assert!(
                to_runtime.to_str().unwrap().ends_with("-01"),
                "its spans are received"
            );
        }
    }
}
