//! What a trace comes to, for comparisons of many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::span::{POD_NAME, POD_NAMESPACE, POD_UID, SpanRecord, TraceId};
use crate::step_owner::StepOwner;
use crate::trace::Trace;

/// The attribute of a root that says how its trace ended.
const OUTCOME: &str = "polylet.outcome";
/// What stands for the outcome of a trace that has none.
pub const INCOMPLETE: &str = "incomplete";
/// The run of a container that has ended.
const RUN: &str = "container.run";
const CONTAINER: &str = "k8s.container.name";

/// An operation of a service. Written as `service/operation`; time that no span explains as `(unattributed)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepName {
    /// The service that recorded it; empty for time that no span explains.
    pub service: String,
    /// The name of its spans; empty for time that no span explains.
    pub operation: String,
}

impl StepName {
    /// Time that no span explains.
    pub fn unattributed() -> StepName {
        StepName {
            service: String::new(),
            operation: String::new(),
        }
    }

    /// Whose time the step is; `None` for time that no span explains.
    pub fn owner(&self) -> Option<StepOwner> {
        (!self.operation.is_empty()).then(|| StepOwner::of(&self.service, &self.operation))
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner() {
            Some(_) => write!(f, "{}/{}", self.service, self.operation),
            None => write!(f, "(unattributed)"),
        }
    }
}

/// A trace without its spans: its pod, and the time of each step on its critical path.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSummary {
    /// The ID of the trace.
    pub id: TraceId,
    /// The name of its root, such as `pod.start`.
    pub root: String,
    /// The pod's uid; empty if it is not known.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// What the pod asked for, by which traces can be compared: see [`shape`].
    pub shape: String,
    /// How the trace ended, such as `ready`; empty if it is incomplete.
    pub outcome: String,
    /// The start of the root.
    pub start: Timestamp,
    /// The duration of the root.
    pub duration: Duration,
    /// Time on the critical path, by step. The sum is the duration.
    pub steps: BTreeMap<StepName, Duration>,
    /// Versions of the services that recorded spans, by service.
    pub versions: BTreeMap<String, String>,
}

impl TraceSummary {
    /// The end of the root.
    pub fn end(&self) -> Timestamp {
        // Of a time that no clock can show, the last.
        let end = self.start.checked_add(self.duration);
        end.unwrap_or(Timestamp::MAX)
    }

    /// How the trace ended; [`INCOMPLETE`] without an outcome.
    pub fn outcome_label(&self) -> &str {
        match self.outcome.as_str() {
            "" => INCOMPLETE,
            outcome => outcome,
        }
    }

    /// The step with the longest time on the path.
    pub fn worst_step(&self) -> Option<(&StepName, Duration)> {
        let longest = self.steps.iter().max_by_key(|(_, time)| **time)?;
        Some((longest.0, *longest.1))
    }
}

impl Trace {
    /// The versions of the services that recorded spans, by service. Of a service that was upgraded meanwhile, that
    /// of its last span.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let mut spans: Vec<_> = self.spans.iter().collect();
        spans.retain(|span| !span.version.is_empty());
        spans.sort_by_key(|span| (span.start, span.span));
        let versions = spans.into_iter();
        versions
            .map(|span| (span.service.clone(), span.version.clone()))
            .collect()
    }

    /// The summary; `None` without a root.
    pub fn summary(&self) -> Option<TraceSummary> {
        let root = self.root()?;
        let mut steps: BTreeMap<StepName, Duration> = BTreeMap::new();
        let (from, to) = (root.start.as_nanosecond(), root.end.as_nanosecond());
        for segment in self.critical_path() {
            // What goes on after the root's end is not part of it.
            let time = segment.end.min(to) - segment.start.max(from);
            let Some(time) = u64::try_from(time).ok().filter(|time| *time > 0) else {
                continue;
            };
            let span = segment.node.and_then(|at| self.spans.get(at));
            let step = span.map_or_else(StepName::unattributed, |span| StepName {
                service: span.service.clone(),
                operation: span.name.clone(),
            });
            *steps.entry(step).or_default() += Duration::from_nanos(time);
        }
        let duration = u64::try_from(to.saturating_sub(from)).unwrap_or_default();
        Some(TraceSummary {
            id: self.id,
            root: root.name.clone(),
            uid: root.attribute(POD_UID).to_owned(),
            namespace: root.attribute(POD_NAMESPACE).to_owned(),
            name: root.attribute(POD_NAME).to_owned(),
            shape: shape(&self.spans, root.end),
            outcome: root.attribute(OUTCOME).to_owned(),
            start: root.start,
            duration: Duration::from_nanos(duration),
            steps,
            versions: self.versions(),
        })
    }
}

/// What a pod's start consisted of: its containers, and whether it ran init containers, mounted volumes, pulled
/// images and was probed. Starts of one shape do the same work. What
/// began after its `end` does not count, nor do containers that still ran.
pub fn shape(spans: &[SpanRecord], end: Timestamp) -> String {
    let spans = spans.iter().filter(|span| span.start <= end);
    let spans: Vec<&SpanRecord> = spans
        .filter(|span| span.name != RUN || span.end <= end)
        .collect();
    let named = |name: &str| -> BTreeSet<&str> {
        let spans = spans.iter().filter(|span| span.name == name);
        spans.map(|span| span.attribute(CONTAINER)).collect()
    };
    let any = |prefix: &str| spans.iter().any(|span| span.name.starts_with(prefix));
    let mut shape = match named("sync.start").len() {
        1 => "1 container".to_owned(),
        count => format!("{count} containers"),
    };
    for (has, word) in [
        (any(RUN), "init"),
        (any("volume."), "volumes"),
        (any("cri.PullImage"), "pull"),
        (any("probe."), "probes"),
    ] {
        if has {
            shape.push_str(", ");
            shape.push_str(word);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u8, name: &str, start: i64, end: i64) -> SpanRecord {
        SpanRecord {
            trace: [1; 16],
            span: [id; 8],
            parent: (id != 1).then_some([1; 8]),
            service: "sync-coordinator".to_owned(),
            version: String::new(),
            name: name.to_owned(),
            start: Timestamp::from_millisecond(start).unwrap(),
            end: Timestamp::from_millisecond(end).unwrap(),
            attributes: BTreeMap::new(),
            error: None,
            links: Vec::new(),
        }
    }

    #[test]
    fn steps_sum_up_to_the_duration() {
        let spans = vec![
            span(1, "pod.start", 0, 100),
            span(2, "sync.sandbox", 10, 60),
            span(3, "sync.start", 60, 90),
            // Nobody waits for what is not over at the end: a container that goes on, for one.
            span(4, "container.run", 90, 130),
            span(5, "volume.unmount", 120, 130),
        ];
        let summary = Trace { id: [1; 16], spans }.summary().unwrap();
        assert_eq!(summary.shape, "1 container");
        let sum: Duration = summary.steps.values().sum();
        assert_eq!((sum, summary.duration), (Duration::from_millis(100), sum));
        let steps = summary
            .steps
            .iter()
            .map(|(step, time)| format!("{step} {time:?}"));
        let steps: Vec<_> = steps.collect();
        assert_eq!(
            steps,
            [
                "(unattributed) 20ms",
                "sync-coordinator/sync.sandbox 50ms",
                "sync-coordinator/sync.start 30ms",
            ]
        );
    }

    #[test]
    fn the_version_of_a_service_is_that_of_its_last_span() {
        let versioned = |id, start, version: &str| SpanRecord {
            version: version.to_owned(),
            ..span(id, "sync.start", start, 100)
        };
        let spans = vec![
            versioned(2, 5, "2"),
            versioned(3, 1, "1"),
            versioned(4, 9, ""),
        ];
        let versions = Trace { id: [1; 16], spans }.versions();
        let expected = [("sync-coordinator".to_owned(), "2".to_owned())];
        assert_eq!(versions, expected.into());
    }

    #[test]
    fn a_trace_without_a_root_has_no_summary() {
        assert_eq!(
            Trace {
                id: [1; 16],
                spans: Vec::new()
            }
            .summary(),
            None
        );
    }
}
