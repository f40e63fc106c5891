//! What a trace comes to, for comparisons of many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::span::{
    KERNEL_VERSION, NODE_NAME, POD_NAME, POD_NAMESPACE, POD_UID, RUNTIME_NAME, RUNTIME_VERSION,
    SpanRecord, TraceId,
};
use crate::step_owner::StepOwner;
use crate::trace::Trace;

/// The attribute of a root that says how its trace ended.
const OUTCOME: &str = "polylet.outcome";
/// What stands for the outcome of a trace that has none.
pub const INCOMPLETE: &str = "incomplete";
/// The run of a container that has ended.
const RUN: &str = "container.run";
const CONTAINER: &str = "k8s.container.name";
const VOLUME: &str = "k8s.volume.name";
/// What the kernel is called among the versions of a trace.
pub const KERNEL: &str = "kernel";
/// What the node is called among the versions of a trace; its name is the version.
pub const NODE: &str = "node";

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
    /// Versions of what took part in it, by name: see [`versions()`].
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
            versions: versions(&self.spans),
        })
    }
}

/// The versions of what took part in a trace: services by their names, the container runtime by its own, the
/// [`KERNEL`], and the [`NODE`]. Of what was upgraded meanwhile, that of the last span.
pub fn versions(spans: &[SpanRecord]) -> BTreeMap<String, String> {
    let mut spans: Vec<&SpanRecord> = spans.iter().collect();
    spans.sort_by_key(|span| (span.start, span.span));
    let services = spans.iter().map(|span| (&*span.service, &*span.version));
    // They know the version of a runtime whose own spans may not.
    let runtimes = spans.iter().map(|span| {
        (
            span.attribute(RUNTIME_NAME),
            span.attribute(RUNTIME_VERSION),
        )
    });
    let kernels = spans
        .iter()
        .map(|span| (KERNEL, span.attribute(KERNEL_VERSION)));
    let nodes = spans.iter().map(|span| (NODE, span.attribute(NODE_NAME)));
    let all = services.chain(runtimes).chain(kernels).chain(nodes);
    let known = all.filter(|(name, version)| !name.is_empty() && !version.is_empty());
    known
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

/// What a pod's start consisted of: how many containers and init containers ran, how many volumes were mounted, and
/// whether images were pulled and containers probed; of a deletion, how many containers were removed. Traces of one
/// shape do the same work. What began after its `end` does not count, nor do containers that still ran.
pub fn shape(spans: &[SpanRecord], end: Timestamp) -> String {
    let spans = spans.iter().filter(|span| span.start <= end);
    let spans: Vec<&SpanRecord> = spans
        .filter(|span| span.name != RUN || span.end <= end)
        .collect();
    let count_all = |is_one: &dyn Fn(&str) -> bool, attribute: &str| {
        let named = spans.iter().filter(|span| is_one(&span.name));
        let names: BTreeSet<&str> = named.map(|span| span.attribute(attribute)).collect();
        // Those without a name belong to one that has one.
        let without = usize::from(names.len() > 1 && names.contains(""));
        names.len() - without
    };
    let count =
        |prefix: &str, attribute: &str| count_all(&|name| name.starts_with(prefix), attribute);
    let containers = match count("sync.start", CONTAINER) {
        0 => count_all(&|name| name == "sync.remove", CONTAINER),
        started => started,
    };
    let mut shape = match containers {
        1 => "1 container".to_owned(),
        count => format!("{count} containers"),
    };
    match count(RUN, CONTAINER) {
        0 => {}
        count => shape.push_str(&format!(", {count} init")),
    }
    match count("volume.", VOLUME) {
        0 => {}
        1 => shape.push_str(", 1 volume"),
        count => shape.push_str(&format!(", {count} volumes")),
    }
    let any = |prefix: &str| spans.iter().any(|span| span.name.starts_with(prefix));
    for (has, word) in [(any("cri.PullImage"), "pull"), (any("probe."), "probes")] {
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
        let expected = [("sync-coordinator".to_owned(), "2".to_owned())];
        assert_eq!(versions(&spans), expected.into());
    }

    fn with(span: SpanRecord, attributes: &[(&str, &str)]) -> SpanRecord {
        let attributes = attributes.iter();
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        SpanRecord {
            attributes: attributes.map(owned).collect(),
            ..span
        }
    }

    #[test]
    fn runtime_kernel_and_node_are_among_the_versions() {
        let facts = [
            (RUNTIME_NAME, "containerd"),
            (RUNTIME_VERSION, "2.1.9"),
            (KERNEL_VERSION, "6.12.1"),
            (NODE_NAME, "n1"),
        ];
        let of_runtime = SpanRecord {
            service: "containerd".to_owned(),
            version: "unknown".to_owned(),
            ..span(3, "runtime.v1.RuntimeService/RunPodSandbox", 50, 60)
        };
        let spans = [
            with(span(2, "status.ready", 5, 6), &facts),
            of_runtime,
            // Not known.
            with(span(4, "status.update", 9, 10), &[(RUNTIME_NAME, "")]),
        ];
        let found: Vec<_> = versions(&spans).into_iter().collect();
        let expected = [("containerd", "2.1.9"), (KERNEL, "6.12.1"), (NODE, "n1")];
        let owned = |(name, version): (&str, &str)| (name.to_owned(), version.to_owned());
        assert_eq!(found, expected.map(owned));
    }

    #[test]
    fn the_shape_counts_what_the_pod_asked_for() {
        let volume = |id, name| with(span(id, "volume.setup", 0, 5), &[(VOLUME, name)]);
        let container = |id, step, name| with(span(id, step, 5, 8), &[(CONTAINER, name)]);
        let end = Timestamp::from_millisecond(100).unwrap();
        let mut spans = vec![
            volume(2, "data"),
            volume(3, "config"),
            // A part of the first, and a second attempt.
            span(4, "volume.mount", 1, 2),
            volume(5, "data"),
            container(6, "sync.start", "init"),
            container(7, RUN, "init"),
            container(8, "sync.start", "web"),
        ];
        assert_eq!(shape(&spans, end), "2 containers, 1 init, 2 volumes");
        spans.drain(1..);
        spans.push(span(9, "cri.PullImage", 1, 2));
        assert_eq!(shape(&spans, end), "0 containers, 1 volume, pull");
        spans.clear();
        spans.push(span(4, "volume.mount", 1, 2));
        assert_eq!(shape(&spans, end), "0 containers, 1 volume");
        let deletion = [
            container(2, "sync.stop", "web"),
            container(3, "sync.remove", "web"),
            container(4, "sync.remove", "init"),
            span(5, "sync.remove_files", 6, 7),
        ];
        assert_eq!(shape(&deletion, end), "2 containers");
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
