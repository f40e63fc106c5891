//! Summaries and filters of traces on the wire.

use std::time::Duration;

use polylet_trace::{StepName, TraceFilter, TraceSummary, hex, parse_trace_id};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::time::{from_wire, from_wire_opt, to_wire as time_to_wire};
use tonic::Status;

/// The summary on the wire.
pub(crate) fn to_wire(summary: TraceSummary) -> wire::TraceSummary {
    let steps = summary.steps.into_iter();
    wire::TraceSummary {
        trace_id: hex(&summary.id),
        root: summary.root,
        pod_uid: summary.uid,
        namespace: summary.namespace,
        name: summary.name,
        shape: summary.shape,
        outcome: summary.outcome,
        start: Some(time_to_wire(summary.start)),
        duration: duration_to_wire(summary.duration),
        steps: steps
            .map(|(step, time)| wire::StepTime {
                service: step.service,
                operation: step.operation,
                duration: duration_to_wire(time),
            })
            .collect(),
        versions: summary.versions.into_iter().collect(),
    }
}

/// A summary from the wire; `None` without a valid ID or start.
pub(crate) fn from_wire_summary(summary: wire::TraceSummary) -> Option<TraceSummary> {
    let step = |step: wire::StepTime| {
        let name = StepName {
            service: step.service,
            operation: step.operation,
        };
        (name, duration_from_wire(step.duration))
    };
    Some(TraceSummary {
        id: parse_trace_id(&summary.trace_id)?,
        root: summary.root,
        uid: summary.pod_uid,
        namespace: summary.namespace,
        name: summary.name,
        shape: summary.shape,
        outcome: summary.outcome,
        start: from_wire_opt(summary.start.as_ref())?,
        duration: duration_from_wire(summary.duration),
        steps: summary.steps.into_iter().map(step).collect(),
        versions: summary.versions.into_iter().collect(),
    })
}

/// The filter on the wire.
pub(crate) fn filter_to_wire(filter: &TraceFilter) -> wire::TraceFilter {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let versions = filter.versions.clone();
    wire::TraceFilter {
        since: filter.since.map(time_to_wire),
        until: filter.until.map(time_to_wire),
        namespace: text(&filter.namespace),
        root: text(&filter.root),
        shape: text(&filter.shape),
        outcome: text(&filter.outcome),
        slower_than: filter.slower_than.and_then(duration_to_wire),
        versions: versions.into_iter().collect(),
    }
}

/// A filter from the wire.
pub(crate) fn filter_from_wire(filter: Option<wire::TraceFilter>) -> Result<TraceFilter, Status> {
    let filter = filter.unwrap_or_default();
    let time = |field: &str, at: Option<prost_types::Timestamp>| {
        let invalid = || Status::invalid_argument(format!("filter.{field}: not a time"));
        at.map(|at| from_wire(&at).ok_or_else(invalid)).transpose()
    };
    let text = |text: String| (!text.is_empty()).then_some(text);
    let slower_than = filter.slower_than.map(Duration::try_from).transpose();
    let negative = |_| Status::invalid_argument("filter.slower_than: negative");
    Ok(TraceFilter {
        since: time("since", filter.since)?,
        until: time("until", filter.until)?,
        namespace: text(filter.namespace),
        root: text(filter.root),
        shape: text(filter.shape),
        outcome: text(filter.outcome),
        slower_than: slower_than.map_err(negative)?,
        versions: filter.versions.into_iter().collect(),
    })
}

fn duration_to_wire(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

/// Zero if it is unset or negative.
fn duration_from_wire(duration: Option<prost_types::Duration>) -> Duration {
    let duration = duration.map(Duration::try_from);
    duration.and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn summaries_and_filters_survive_the_wire() {
        let step = StepName {
            service: "pleg".to_owned(),
            operation: "pleg.observe".to_owned(),
        };
        let summary = TraceSummary {
            id: [7; 16],
            root: "pod.start".to_owned(),
            uid: "u1".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            shape: "1 container".to_owned(),
            outcome: "ready".to_owned(),
            start: Timestamp::new(7, 8).unwrap(),
            duration: Duration::from_nanos(9_000_000_001),
            steps: [(step, Duration::from_micros(3))].into(),
            versions: [("pleg".to_owned(), "0.1.0".to_owned())].into(),
        };
        let received = from_wire_summary(to_wire(summary.clone()));
        assert_eq!(received.as_ref(), Some(&summary));
        let filter = TraceFilter {
            since: Some(summary.start),
            until: Some(summary.end()),
            namespace: Some(summary.namespace),
            root: Some(summary.root),
            shape: Some(summary.shape),
            outcome: Some(summary.outcome),
            slower_than: Some(summary.duration),
            versions: summary.versions,
        };
        let received = filter_from_wire(Some(filter_to_wire(&filter))).unwrap();
        assert_eq!(received, filter);
        let none = filter_from_wire(None).unwrap();
        assert_eq!(none, TraceFilter::default());
    }

    #[test]
    fn invalid_filters_are_refused() {
        let negative = prost_types::Duration {
            seconds: -1,
            nanos: 0,
        };
        let filter = wire::TraceFilter {
            slower_than: Some(negative),
            ..wire::TraceFilter::default()
        };
        let refused = filter_from_wire(Some(filter)).unwrap_err();
        assert_eq!(refused.message(), "filter.slower_than: negative");
        let filter = wire::TraceFilter {
            since: Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0,
            }),
            ..wire::TraceFilter::default()
        };
        let refused = filter_from_wire(Some(filter)).unwrap_err();
        assert_eq!(refused.message(), "filter.since: not a time");
    }
}
