//! Spans between OTLP, the buffer and the wire.

use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span, Status as SpanStatus};
use polylet_trace::{SpanRecord, Trace, TraceId, hex, parse_span_id, parse_trace_id};
use polylet_wire::supervisor::v1 as wire;

/// Longer strings are cut off.
const MAX_TEXT: usize = 2048;
/// Most attributes, events and links of a span of another program.
const MAX_FOREIGN_ATTRIBUTES: usize = 32;
const MAX_FOREIGN_EVENTS: usize = 16;
const MAX_FOREIGN_LINKS: usize = 8;
/// The flags of spans that other programs set.
const FOREIGN_FLAGS: u32 = 0x303;

/// The service that recorded spans.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanResource {
    /// Its short name.
    service: String,
    /// The version of its program.
    version: String,
}

/// The service of the node agent that recorded the spans.
pub(crate) fn resource_of(spans: &ResourceSpans) -> SpanResource {
    let mut resource = foreign_resource_of(spans);
    if let Some(service) = resource.service.strip_prefix("polylet-") {
        resource.service = service.to_owned();
    }
    resource
}

/// Takes from a span of another program what only the node agent may say, and what is too much.
pub(super) fn limit_foreign(span: &mut Span) {
    span.attributes
        .retain(|attribute| !attribute.key.starts_with("polylet."));
    span.attributes.truncate(MAX_FOREIGN_ATTRIBUTES);
    span.events.truncate(MAX_FOREIGN_EVENTS);
    span.links.truncate(MAX_FOREIGN_LINKS);
    // The node's own flags.
    span.flags &= FOREIGN_FLAGS;
}

/// The program that recorded the spans.
pub(super) fn foreign_resource_of(spans: &ResourceSpans) -> SpanResource {
    let attributes = spans
        .resource
        .as_ref()
        .map(|r| r.attributes.as_slice())
        .unwrap_or_default();
    let value = |key: &str| {
        let attribute = attributes.iter().find(|attribute| attribute.key == key);
        let value = attribute.and_then(|attribute| attribute.value.as_ref());
        value.map(|value| cut(&text(value))).unwrap_or_default()
    };
    SpanResource {
        service: value("service.name"),
        version: value("service.version"),
    }
}

/// The record of a span; `None` without valid IDs or times.
pub(crate) fn record(resource: &SpanResource, span: &Span) -> Option<SpanRecord> {
    let time = |nanos: u64| Timestamp::from_nanosecond(i128::from(nanos)).ok();
    let trace: [u8; 16] = span.trace_id.as_slice().try_into().ok()?;
    let status = span.status.as_ref();
    let failed = status.is_some_and(|status| status.code == StatusCode::Error as i32);
    let error = status
        .filter(|_| failed)
        .map(|status| match status.message.as_str() {
            "" => "failed".to_owned(),
            message => cut(message),
        });
    let record = SpanRecord {
        trace,
        span: span.span_id.as_slice().try_into().ok()?,
        parent: span.parent_span_id.as_slice().try_into().ok(),
        service: resource.service.clone(),
        version: resource.version.clone(),
        name: cut(&span.name),
        start: time(span.start_time_unix_nano)?,
        end: time(span.end_time_unix_nano)?,
        attributes: span.attributes.iter().filter_map(attribute).collect(),
        error,
        links: span
            .links
            .iter()
            .map(|l| format!("{}-{}", hex(&l.trace_id), hex(&l.span_id)))
            .collect(),
    };
    (trace != [0; 16]).then_some(record)
}

fn attribute(attribute: &KeyValue) -> Option<(String, String)> {
    Some((cut(&attribute.key), cut(&text(attribute.value.as_ref()?))))
}

fn text(value: &AnyValue) -> String {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::BoolValue(value)) => value.to_string(),
        Some(any_value::Value::IntValue(value)) => value.to_string(),
        Some(any_value::Value::DoubleValue(value)) => value.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// The root of a trace for a collector.
pub(super) fn to_otlp(root: SpanRecord) -> Span {
    let nanos = |time: Timestamp| u64::try_from(time.as_nanosecond()).unwrap_or_default();
    let attributes = root.attributes.into_iter();
    Span {
        trace_id: root.trace.to_vec(),
        span_id: root.span.to_vec(),
        name: root.name,
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(root.start),
        end_time_unix_nano: nanos(root.end),
        attributes: attributes
            .map(|(key, value)| attribute_of(&key, value))
            .collect(),
        links: root.links.iter().filter_map(|link| to_link(link)).collect(),
        status: root.error.map(|message| SpanStatus {
            message,
            code: StatusCode::Error.into(),
        }),
        ..Span::default()
    }
}

/// A link of `traceid-spanid`.
fn to_link(link: &str) -> Option<Link> {
    let (trace, span) = link.split_once('-')?;
    Some(Link {
        trace_id: parse_trace_id(trace)?.to_vec(),
        span_id: parse_span_id(span)?.to_vec(),
        ..Link::default()
    })
}

/// An attribute with a text.
pub(super) fn attribute_of(key: &str, value: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..KeyValue::default()
    }
}

/// The span on the wire.
pub(crate) fn to_wire(record: SpanRecord) -> wire::Span {
    wire::Span {
        span_id: hex(&record.span),
        parent_span_id: record.parent.map(|id| hex(&id)).unwrap_or_default(),
        service: record.service,
        name: record.name,
        start: Some(polylet_wire::time::to_wire(record.start)),
        end: Some(polylet_wire::time::to_wire(record.end)),
        attributes: record.attributes.into_iter().collect(),
        error: record.error.unwrap_or_default(),
        links: record.links,
        version: record.version,
    }
}

/// A trace from the wire, without spans that are not valid.
pub(crate) fn trace_from_wire(id: TraceId, spans: Vec<wire::Span>) -> Trace {
    let spans = spans.into_iter();
    let spans = spans.filter_map(|span| from_wire(id, span)).collect();
    Trace { id, spans }
}

/// A span from the wire; `None` without valid IDs or times.
fn from_wire(trace: TraceId, span: wire::Span) -> Option<SpanRecord> {
    let time = |at: Option<&_>| polylet_wire::time::from_wire_opt(at);
    Some(SpanRecord {
        trace,
        span: parse_span_id(&span.span_id)?,
        parent: parse_span_id(&span.parent_span_id),
        start: time(span.start.as_ref())?,
        end: time(span.end.as_ref())?,
        service: span.service,
        version: span.version,
        name: span.name,
        attributes: span.attributes.into_iter().collect(),
        error: (!span.error.is_empty()).then_some(span.error),
        links: span.links,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn span_without_ids_is_dropped() {
        assert_eq!(record(&SpanResource::default(), &Span::default()), None);
        let zero = Span {
            trace_id: vec![0; 16],
            span_id: vec![1; 8],
            ..Span::default()
        };
        assert_eq!(record(&SpanResource::default(), &zero), None);
    }

    #[test]
    fn the_recording_service_has_a_name_and_a_version() {
        use opentelemetry_proto::tonic::resource::v1::Resource;
        let attributes = [
            ("service.name", "polylet-pleg"),
            ("service.version", "1.2.3"),
        ];
        let attributes = attributes.map(|(key, value)| attribute_of(key, value.to_owned()));
        let spans = ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.into(),
                ..Resource::default()
            }),
            ..ResourceSpans::default()
        };
        let expected = SpanResource {
            service: "pleg".to_owned(),
            version: "1.2.3".to_owned(),
        };
        assert_eq!(resource_of(&spans), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_spans_never_panic(
            trace in prop::collection::vec(any::<u8>(), 0..20),
            span in prop::collection::vec(any::<u8>(), 0..10),
            start: u64,
            end: u64,
            name in "\\PC{0,3000}",
        ) {
            let span = Span {
                trace_id: trace,
                span_id: span,
                start_time_unix_nano: start,
                end_time_unix_nano: end,
                name,
                ..Span::default()
            };
            if let Some(record) = record(&SpanResource::default(), &span) {
                prop_assert!(record.name.len() <= MAX_TEXT);
            }
        }
    }
}
