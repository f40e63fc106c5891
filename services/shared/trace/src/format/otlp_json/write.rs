//! Traces to lines.

use std::collections::BTreeMap;
use std::io::{self, Write};

use jiff::Timestamp;

use super::SERVICE_PREFIX;
use super::encoding::STATUS_ERROR;
use super::message::{
    OtlpLine, OtlpLink, OtlpResource, OtlpResourceSpans, OtlpScopeSpans, OtlpSpan, OtlpStatus,
};
use crate::span::{SpanRecord, is_own_service, parse_span_id, parse_trace_id};
use crate::trace::Trace;

/// Writes a line for each trace. Nothing of it is lost, except links that are no IDs, and times before 1970.
///
/// # Errors
/// Writing failed.
pub fn write(traces: &[Trace], to: &mut dyn Write) -> io::Result<()> {
    for trace in traces {
        serde_json::to_writer(&mut *to, &line(trace))?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

fn line(trace: &Trace) -> OtlpLine {
    let mut resources: BTreeMap<(&str, &str), Vec<OtlpSpan>> = BTreeMap::new();
    for span in &trace.spans {
        let resource = (span.service.as_str(), span.version.as_str());
        resources.entry(resource).or_default().push(to_otlp(span));
    }
    let resources = resources.into_iter();
    let resources = resources.map(|((service, version), spans)| OtlpResourceSpans {
        resource: resource(service, version),
        scope_spans: vec![OtlpScopeSpans { spans }],
    });
    OtlpLine {
        resource_spans: resources.collect(),
    }
}

fn resource(service: &str, version: &str) -> OtlpResource {
    let name = match is_own_service(service) {
        true => format!("{SERVICE_PREFIX}{service}"),
        false => service.to_owned(),
    };
    let attributes = [
        ("service.name", name),
        ("service.version", version.to_owned()),
    ];
    let attributes = attributes
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value));
    OtlpResource {
        attributes: attributes.collect(),
    }
}

fn to_otlp(span: &SpanRecord) -> OtlpSpan {
    // OTLP has no times before 1970.
    let nanos = |time: Timestamp| u64::try_from(time.as_nanosecond()).unwrap_or_default();
    let link = |link: &String| {
        let (trace, span) = link.rsplit_once('-')?;
        Some(OtlpLink {
            trace_id: parse_trace_id(trace)?,
            span_id: parse_span_id(span)?,
        })
    };
    OtlpSpan {
        trace_id: span.trace,
        span_id: span.span,
        parent_span_id: span.parent,
        name: span.name.clone(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: span.attributes.clone(),
        links: span.links.iter().filter_map(link).collect(),
        status: span.error.clone().map(|message| OtlpStatus {
            code: STATUS_ERROR,
            message,
        }),
    }
}
