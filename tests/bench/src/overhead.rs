//! Where the time goes that pods take beyond the raw calls to the runtime, by the steps of their traces.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use polylet_harness::HarnessError;
use polylet_trace::format::otlp_json;
use polylet_trace::{SpanRecord, StepName, StepOwner, Trace};

use crate::measure::Samples;

/// The attribute with the pod's name.
const POD_NAME: &str = "k8s.pod.name";
/// Parts that take less are counted together, in milliseconds.
const NEGLIGIBLE_MS: f64 = 0.05;

/// Starts, or removals, of pods of one kind.
pub(crate) struct MeasuredPods {
    /// As in the table of the run.
    pub(crate) what: String,
    /// The name of the traces' roots.
    pub(crate) root: &'static str,
    /// What the names of the pods begin with; a number and a hyphen follow.
    pub(crate) prefix: String,
    pub(crate) raw: Samples,
    pub(crate) measured: Samples,
}

impl MeasuredPods {
    /// Whether a trace is one of those pods'. The first pod is warm-up.
    fn has(&self, root: &SpanRecord) -> bool {
        let rest = root.attribute(POD_NAME).strip_prefix(&self.prefix);
        let number = rest.and_then(|rest| rest.split('-').next());
        let number = number.and_then(|number| number.parse::<usize>().ok());
        root.name == self.root && number.is_some_and(|number| number > 0)
    }
}

/// What a trace waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathPart {
    Step(StepName),
    /// Time that no span explains, before a step: that of a message between processes, mostly.
    Before(StepName),
}

/// The parts of a trace's critical path, whose times add up to its duration.
type PathTimes = BTreeMap<PathPart, Duration>;

fn path_times(trace: &Trace, root: &SpanRecord) -> PathTimes {
    let (from, to) = (root.start.as_nanosecond(), root.end.as_nanosecond());
    let mut times = PathTimes::new();
    // From the end, so that the next step is known; at the end there is none.
    let mut next = StepName::unattributed();
    for segment in trace.critical_path().into_iter().rev() {
        let time = segment.end.min(to) - segment.start.max(from);
        let span = segment.node.and_then(|at| trace.spans.get(at));
        let part = match span {
            Some(span) => {
                next = StepName {
                    service: span.service.clone(),
                    operation: span.name.clone(),
                };
                PathPart::Step(next.clone())
            }
            None => PathPart::Before(next.clone()),
        };
        if let Some(time) = u64::try_from(time).ok().filter(|time| *time > 0) {
            *times.entry(part).or_default() += Duration::from_nanos(time);
        }
    }
    times
}

/// The mean time of pods of one kind beyond that of the raw calls, by steps, which add up to it.
#[derive(Debug, PartialEq)]
struct Overhead {
    what: String,
    traces: usize,
    raw_ms: f64,
    /// Steps, whose time it is, and milliseconds.
    rows: Vec<(String, &'static str, f64)>,
    sum_ms: f64,
}

/// Prints a table for each kind, from the traces that a run has recorded.
pub(crate) fn print(file: &Path, measured: &[MeasuredPods]) -> Result<(), HarnessError> {
    let opened = File::open(file).map_err(|source| HarnessError::File {
        what: "read",
        path: file.to_owned(),
        source,
    })?;
    let mut invalid = 0;
    let traces = otlp_json::read(BufReader::new(opened), &mut |_| invalid += 1);
    if invalid > 0 {
        eprintln!("{}: {invalid} lines are no traces", file.display());
    }
    for pods in measured {
        let roots = traces
            .iter()
            .filter_map(|trace| Some((trace, trace.root()?)));
        let selected = roots.filter(|(_, root)| pods.has(root));
        let paths: Vec<_> = selected
            .map(|(trace, root)| path_times(trace, root))
            .collect();
        match overhead(pods, &paths) {
            Some(overhead) => println!("\n{overhead}"),
            None => println!("\n{}: no traces", pods.what),
        }
    }
    Ok(())
}

/// `None` without traces.
fn overhead(pods: &MeasuredPods, paths: &[PathTimes]) -> Option<Overhead> {
    let mean = |sum: Duration| sum.as_secs_f64() * 1e3 / paths.len() as f64;
    let traced = mean(paths.iter().flat_map(BTreeMap::values).sum());
    let mut parts = PathTimes::new();
    for (part, time) in paths.iter().flatten() {
        *parts.entry(part.clone()).or_default() += *time;
    }
    let (raw_ms, measured_ms) = (ms(pods.raw.mean()), ms(pods.measured.mean()));
    let (mut in_runtime, mut negligible, mut small) = (0.0, 0.0, 0);
    let mut rows = Vec::new();
    for (part, time) in parts {
        let time = mean(time);
        let (label, owner) = match &part {
            PathPart::Step(step) => (step.to_string(), step.owner()),
            PathPart::Before(step) if *step == StepName::unattributed() => {
                ("(after the last step)".to_owned(), None)
            }
            PathPart::Before(step) => (format!("(before {step})"), None),
        };
        let is_run = matches!(&part, PathPart::Step(step) if step.operation == "container.run");
        // The raw calls wait for this, too.
        if is_run || owner == Some(StepOwner::Runtime) {
            in_runtime += time;
        } else if time < NEGLIGIBLE_MS {
            negligible += time;
            small += 1;
        } else {
            rows.push((label, owner.map_or("", StepOwner::label), time));
        }
    }
    rows.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    rows.push((
        format!("{small} parts of less than {NEGLIGIBLE_MS} ms"),
        "",
        negligible,
    ));
    let runtime = StepOwner::Runtime.label();
    let beyond = "the runtime's time beyond that of the raw calls".to_owned();
    rows.push((beyond, runtime, in_runtime - raw_ms));
    let outside = "before the first span and after the last one".to_owned();
    rows.push((outside, "", measured_ms - traced));
    (!paths.is_empty()).then(|| Overhead {
        what: pods.what.clone(),
        traces: paths.len(),
        raw_ms,
        rows,
        sum_ms: measured_ms - raw_ms,
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A table in Markdown.
impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, traces, raw) = (&self.what, self.traces, self.raw_ms);
        writeln!(
            f,
            "| {what}, mean of {traces} | whose time | beyond raw CRI's {raw:.1} ms |"
        )?;
        writeln!(f, "| --- | --- | --- |")?;
        for (step, owner, time) in &self.rows {
            writeln!(f, "| {step} | {owner} | {time:+.2} ms |")?;
        }
        writeln!(f, "| all of it | | {:+.2} ms |", self.sum_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(service: &str, operation: &str) -> StepName {
        StepName {
            service: service.to_owned(),
            operation: operation.to_owned(),
        }
    }

    fn span(id: u8, parent: Option<u8>, name: &str, millis: (i64, i64)) -> SpanRecord {
        let at = |millis| jiff::Timestamp::from_millisecond(millis).unwrap();
        SpanRecord {
            trace: [1; 16],
            span: [id; 8],
            parent: parent.map(|id| [id; 8]),
            service: "pleg".to_owned(),
            version: String::new(),
            name: name.to_owned(),
            start: at(millis.0),
            end: at(millis.1),
            attributes: BTreeMap::new(),
            error: None,
            links: Vec::new(),
        }
    }

    #[test]
    fn time_that_no_span_explains_is_that_before_a_step() {
        let spans = vec![
            span(1, None, "pod.start", (0, 100)),
            span(2, Some(1), "sync.sandbox", (10, 60)),
            span(3, Some(1), "status.ready", (65, 95)),
        ];
        let trace = Trace { id: [1; 16], spans };
        let times = path_times(&trace, trace.root().unwrap());
        let (sandbox, ready) = (step("pleg", "sync.sandbox"), step("pleg", "status.ready"));
        let expected = [
            (PathPart::Step(ready.clone()), 30),
            (PathPart::Step(sandbox.clone()), 50),
            (PathPart::Before(StepName::unattributed()), 5),
            (PathPart::Before(ready), 5),
            (PathPart::Before(sandbox), 10),
        ];
        let expected = expected.map(|(part, millis)| (part, Duration::from_millis(millis)));
        assert_eq!(times, expected.into());
    }

    #[test]
    fn the_pods_of_a_kind_have_its_prefix_and_a_number() {
        let pods = bare(&[], &[]);
        for (name, expected) in [
            ("bare-1-node", true),
            ("bare-0-node", false),
            ("barely-1-node", false),
            ("bare-node", false),
            ("full-1-node", false),
        ] {
            let mut root = span(1, None, "pod.start", (0, 1));
            let attribute = (POD_NAME.to_owned(), name.to_owned());
            root.attributes.extend([attribute]);
            assert_eq!(pods.has(&root), expected, "{name}");
            root.name = "pod.delete".to_owned();
            assert!(!pods.has(&root));
        }
    }

    fn bare(raw: &[u64], measured: &[u64]) -> MeasuredPods {
        let samples = |times: &[u64]| {
            let mut samples = Samples::default();
            let times = times.iter().map(|time| Duration::from_millis(*time));
            times.for_each(|time| samples.add(time));
            samples
        };
        MeasuredPods {
            what: "start, bare".to_owned(),
            root: "pod.start",
            prefix: "bare-".to_owned(),
            raw: samples(raw),
            measured: samples(measured),
        }
    }

    #[test]
    fn steps_add_up_to_the_time_beyond_the_raw_calls() {
        let pods = bare(&[100, 104], &[112, 116]);
        let runtime = PathPart::Step(step("sync-coordinator", "cri.RunPodSandbox"));
        let ready = step("status-reporter", "status.ready");
        let micros = Duration::from_micros;
        let paths = [
            PathTimes::from([
                (runtime.clone(), micros(103_000)),
                (PathPart::Step(step("pleg", "container.run")), micros(1_000)),
                (PathPart::Step(step("pleg", "pleg.observe")), micros(20)),
                (PathPart::Before(ready.clone()), micros(1_980)),
                (PathPart::Step(ready), micros(5_000)),
            ]),
            PathTimes::from([(runtime, micros(111_000))]),
        ];
        let found = overhead(&pods, &paths).unwrap();
        let sum = found.rows.iter().fold(0.0, |sum, (.., time)| sum + time);
        assert!((sum - found.sum_ms).abs() < 1e-9, "{found:?}");
        let expected = "\
| start, bare, mean of 2 | whose time | beyond raw CRI's 102.0 ms |
| --- | --- | --- |
| status-reporter/status.ready | polylet | +2.50 ms |
| (before status-reporter/status.ready) |  | +0.99 ms |
| 1 parts of less than 0.05 ms |  | +0.01 ms |
| the runtime's time beyond that of the raw calls | runtime | +5.50 ms |
| before the first span and after the last one |  | +3.00 ms |
| all of it | | +12.00 ms |
";
        assert_eq!(found.to_string(), expected);
        assert_eq!(overhead(&pods, &[]), None);
    }
}
