//! The root of a trace: it lasts from the trace's first step to its last one, which no service sees. So services
//! record steps below a root whose ID follows from the trace's, and it is derived here from the steps.

use jiff::Timestamp;
use polylet_kit::cause::{self, OUTCOME_ATTRIBUTE, ROOT_ATTRIBUTE, outcome, root};

use polylet_trace::{
    POD_NAME, POD_NAMESPACE, POD_UID, ROOT_FACTS, SpanRecord, TraceId, hex, is_own_service, shape,
    versions,
};

/// The attribute with what a pod's start consisted of.
const SHAPE: &str = "polylet.shape";
/// The attribute with the version of a service begins so, and ends with its name.
const VERSION_PREFIX: &str = "polylet.version.";

/// Whether a span is a step below the root of its trace.
pub fn is_step(span: &SpanRecord) -> bool {
    span.parent == Some(cause::root_id(span.trace))
}

/// The root of a trace with the steps in `spans`; `None` if there are none below such a root, or if it is among them.
///
/// It ends with the last step that has an outcome, or else with the last span.
pub fn root_of(trace: TraceId, spans: &[SpanRecord]) -> Option<SpanRecord> {
    let id = cause::root_id(trace);
    if spans.iter().any(|span| span.span == id) || !spans.iter().any(is_step) {
        return None;
    }
    let start = spans.iter().map(|span| span.start).min()?;
    let named = spans
        .iter()
        .filter(|span| !span.attribute(ROOT_ATTRIBUTE).is_empty());
    let first = named.min_by_key(|span| (span.start, span.span));
    let last = spans
        .iter()
        .filter(|span| !span.attribute(OUTCOME_ATTRIBUTE).is_empty());
    let last = last.max_by_key(|span| (span.end, span.span));
    let end = match last {
        Some(last) => last.end,
        None => spans.iter().map(|span| span.end).max()?,
    };
    let of_pod = first.filter(|span| !span.attribute(POD_UID).is_empty());
    let of_pod = of_pod.or_else(|| {
        let mut spans = spans.iter();
        spans.find(|span| !span.attribute(POD_UID).is_empty())
    });
    let of_pod = of_pod.into_iter().flat_map(|span| {
        let keys = [POD_UID, POD_NAME, POD_NAMESPACE];
        keys.map(|key| (key, span.attribute(key)))
    });
    let ended = last.map(|last| last.attribute(OUTCOME_ATTRIBUTE));
    let end = end.max(start);
    let attributes = of_pod.chain(ended.map(|outcome| (OUTCOME_ATTRIBUTE, outcome)));
    let attributes = attributes.chain(facts(spans));
    let attributes = attributes.filter(|(_, value)| !value.is_empty());
    let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let shape = (SHAPE.to_owned(), shape(spans, end));
    let versions = versions(spans).into_iter();
    let versions = versions.filter(|(name, _)| is_own_service(name));
    let versions = versions.map(|(name, version)| (format!("{VERSION_PREFIX}{name}"), version));
    Some(SpanRecord {
        trace,
        span: id,
        parent: None,
        service: "supervisor".to_owned(),
        version: String::new(),
        name: first
            .map_or(root::POD_SYNC, |first| first.attribute(ROOT_ATTRIBUTE))
            .to_owned(),
        start,
        end,
        attributes: attributes.chain(versions).chain([shape]).collect(),
        error: (ended == Some(outcome::FAILED)).then(|| "the pod failed".to_owned()),
        // What the pod's creation belongs to.
        links: first.map_or_else(Vec::new, |first| outside_links(trace, first)),
    })
}

/// What the last steps that know it say of the node and the pod.
fn facts(spans: &[SpanRecord]) -> impl Iterator<Item = (&str, &str)> {
    ROOT_FACTS.into_iter().filter_map(|key| {
        let knowing = spans.iter().filter(|span| !span.attribute(key).is_empty());
        let last = knowing.max_by_key(|span| (span.start, span.span))?;
        Some((key, last.attribute(key)))
    })
}

/// The links of a step to other traces.
fn outside_links(trace: TraceId, step: &SpanRecord) -> Vec<String> {
    let own = hex(&trace);
    let links = step.links.iter();
    links
        .filter(|link| !link.starts_with(&own))
        .cloned()
        .collect()
}

/// The length of a span; zero if the clock was set back.
pub fn duration(start: Timestamp, end: Timestamp) -> std::time::Duration {
    end.duration_since(start).try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "trace_root_tests.rs"]
mod tests;
